"""Local training: batches, random draws of datasets and dropout, and errors that name the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from small_training import Pairs, make_clients, train
from torch import nn

import fedtaco
from fedtaco import Method
from fedtaco.data import TensorSamples


class NoisySamples(Pairs):
    """Samples with fresh noise, as random crops or flips would give."""

    def __getitem__(self, index):
        return self.x[index] + torch.randn(5), self.y[index]


@pytest.mark.parametrize("method", ["taco", "stem"])
def test_random_draws_of_datasets_depend_neither_on_the_engine_nor_on_earlier_draws(method):
    weights = []
    for engine in ("serial", "pool", "serial", "batched"):
        torch.rand(len(weights))
        clients = [NoisySamples(*part) for part in make_clients()]
        model = nn.Linear(5, 3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        result = train(model=model, clients=clients, method=method, engine=engine)
        weights.append(torch.cat([p.flatten() for p in result.model.state_dict().values()]))
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
    torch.testing.assert_close(weights[0], weights[3])


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_datasets_draw_anew_for_every_client_round_and_step(engine):
    class RecordingSamples(NoisySamples):
        def __getitem__(self, index):
            drawn.append(float(torch.rand(())))
            return self.x[index], self.y[index]

    drawn = []
    clients = [RecordingSamples(*part) for part in make_clients(2)]
    train(clients=clients, method="fedavg", rounds=2, engine=engine, batch_size=8)
    in_training = drawn[-2 * 2 * 4 * 8 :]
    assert len(set(in_training)) == len(in_training) == 2 * 2 * 4 * 8


def test_dropout_is_drawn_anew_in_every_step():
    class RecordingModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)
            self.drawn = []

        def forward(self, x):
            if self.training:
                self.drawn.append(float(torch.rand(())))
            return self.linear(x)

        def __deepcopy__(self, memo):
            return self

    model = RecordingModel()
    train(model=model, clients=make_clients(2), method="fedavg", rounds=2)
    _trial, _warm_up, *drawn = model.drawn
    assert len(drawn) == len(set(drawn)) == 2 * 2 * 4


def test_methods_see_the_same_batches(monkeypatch):
    requested = []
    batch = TensorSamples.batch

    def recording_batch(self, indices):
        requested.append(indices.tolist())
        return batch(self, indices)

    monkeypatch.setattr(TensorSamples, "batch", recording_batch)
    batches = []
    for method in ("fedavg", "taco", "stem"):
        requested.clear()
        fedtaco.run(method, dataset="digits", rounds=1, local_steps=2, engine="serial")
        _warm_up, *in_training = [indices for indices in requested if len(indices) == 64]
        batches.append(in_training)
    assert batches[0] == batches[1] == batches[2]
    assert len(batches[0]) == 40


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_batch_norm_works_for_a_client_with_one_sample(engine):
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    x, y = make_clients(1)[0]
    result = train(model=model, clients=[(x[:1], y[:1]), *make_clients(2)], engine=engine)
    assert result.history.final_accuracy is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_inputs_are_converted_to_the_models_dtype(dtype):
    assert len(train(clients=[(x.to(dtype), y.int()) for x, y in make_clients()]).history) == 3


# What hooks receive


@dataclass(frozen=True)
class Probe(Method):
    """Records what its hooks receive in each round."""

    name, summary = "probe", "is FedAvg"
    seen: ClassVar[list] = []

    def correction(self, local):
        self.seen.append((local.constants, local.full_gradient(local.start), local.start.clone()))

    def aggregate(self, server, uploads):
        self.seen.append(uploads.constants)
        return super().aggregate(server, uploads)


def probe(**settings):
    """Return what the hooks received in a run with one client."""
    Probe.seen.clear()
    torch.manual_seed(0)
    train(method=Probe(), clients=make_clients(1), batch_size=30, server_lr=0.3, **settings)
    return list(Probe.seen)


def test_hooks_of_clients_and_server_receive_the_round_and_its_rates():
    seen = probe(lr_schedule="step:1,0.5")
    clients, server = [constants for constants, *_ in seen[::2]], seen[1::2]
    for round_number, (own, central) in enumerate(zip(clients, server, strict=True), start=1):
        assert own == central
        factor = 0.5 ** (round_number - 1)
        assert (own.round, own.rounds, own.local_steps) == (round_number, 3, 4)
        assert (own.local_lr, own.server_lr) == (factor * 0.1, factor * 0.3)


@pytest.mark.parametrize("engine", ["serial", "batched"])
@pytest.mark.parametrize(
    ("settings", "decay"),
    [
        ({"weight_decay": 0.7}, 0.7),
        ({"weight_decay": 0.7, "clip_norm": 1e-3, "momentum": 0.9}, 0.7),
        ({"optimizer": "adam", "weight_decay": 0.7}, 0.7),
        ({"optimizer": "adamw", "weight_decay": 0.7}, 0.0),
    ],
    ids=str,
)
def test_full_gradient_includes_coupled_decay_but_neither_clip_nor_adam(settings, decay, engine):
    (_, plain, start), *_ = probe(engine=engine)
    (_, gradient, _), *_ = probe(engine=engine, **settings)
    torch.testing.assert_close(gradient.flatten(), (plain + decay * start).flatten())


def test_error_in_training_names_the_client():
    def loss(prediction, target):
        if len(target) == 64 and (target == 77).any():
            raise ValueError("no such ward")
        return nn.functional.cross_entropy(prediction, target.clamp(max=2))

    clients = make_clients()
    clients[2] = (clients[2][0], torch.full((30,), 77))
    with pytest.raises(ValueError, match="no such ward") as error:
        train(clients=clients, loss=loss, method="fedavg")
    assert error.value.__notes__ == ["This happened to client 2 in round 1 of fedavg."]


# Training loss


def test_training_loss_is_the_mean_loss_before_each_step():
    """Two clients of full batches, followed by hand."""
    torch.manual_seed(0)
    model, clients = nn.Linear(5, 3), make_clients(2)
    history = train(model=model, clients=clients, method="fedavg", rounds=1, local_steps=3, batch_size=30).history
    expected = []
    for x, y in clients:
        own = nn.Linear(5, 3)
        own.load_state_dict(model.state_dict())
        losses = []
        for _ in range(3):
            loss = nn.functional.cross_entropy(own(x), y)
            losses.append(loss.item())
            own.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in own.parameters():
                    parameter.sub_(0.1 * parameter.grad)
        expected.append(sum(losses) / 3)
    assert [record.quantities["training_loss"] for record in history.clients] == pytest.approx(expected, rel=1e-6)
    assert history[0].training_loss == pytest.approx(sum(expected) / 2, rel=1e-6)


def test_only_the_first_gradient_of_a_step_counts():
    """A second gradient, at another point of the same batch, does not change the training loss."""

    class TwoGradients(fedtaco.Method):
        name = "two-gradients"
        summary = "computes another gradient and ignores it"

        def direction(self, x, local):
            gradient = local.gradient(x)
            local.gradient(x + 100)
            return gradient

    model = nn.Linear(5, 3)
    for engine in ("serial", "batched"):
        one, two = (train(model=model, method=method, engine=engine).history for method in ("fedavg", TwoGradients))
        assert two.column("training_loss") == one.column("training_loss")


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_training_loss_is_unknown_if_a_step_computes_no_gradient(engine):
    class Lazy(fedtaco.Method):
        name = "lazy"
        summary = "skips the second step"

        def direction(self, x, local):
            return torch.zeros_like(x) if local.step == 1 else local.gradient(x)

    history = train(method=Lazy, engine=engine).history
    assert history.column("training_loss") == [None] * 3
    assert {record.quantities["training_loss"] for record in history.clients} == {None}


def test_training_loss_that_is_not_finite_is_unknown():
    def loss(prediction, target):
        value = nn.functional.cross_entropy(prediction, target)
        return value + (torch.inf if prediction.requires_grad and (target == 0).all() else 0.0)

    clients = make_clients()
    clients[1] = (clients[1][0], torch.zeros(30, dtype=torch.int64))
    history = train(clients=clients, loss=loss, method="fedavg", engine="serial", rounds=1).history
    losses = [record.quantities["training_loss"] for record in history.clients]
    assert losses[1] is None
    known = [value for value in losses if value is not None]
    assert len(known) == 3
    assert history[0].training_loss == pytest.approx(sum(known) / 3)
