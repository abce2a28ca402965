"""The round loop: averaging, buffers, broken uploads, the method's output, and torch's global state."""

from __future__ import annotations

import torch
from run_helpers import assert_same_model
from small_training import make_clients, train
from torch import nn

import fedtaco
from fedtaco.engines import SerialEngine
from fedtaco.methods import FedAvg
from fedtaco.testing import make_federation


def test_fedavg_averages_the_client_models():
    """At the default server learning rate, the new model is the mean of the client models."""
    client_models = []

    class RecordingEngine(SerialEngine):
        def run(self, method, instructions, jobs):
            results = super().run(method, instructions, jobs)
            client_models.append(instructions.broadcast.start - results.vectors["update"])
            return results

    federation = make_federation(FedAvg(), engine=RecordingEngine)
    finished = next(federation.rounds(federation.initial))
    torch.testing.assert_close(finished.state.server.weights, client_models[0].mean(0))


def test_runs_with_buffers_and_dropout_are_reproducible():
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    first, second = train(model=model), train(model=model)
    assert_same_model(first.model, second.model)
    assert not torch.equal(first.model[1].running_mean, model[1].running_mean)


def test_buffers_are_averaged_over_clients():
    model = nn.Sequential(nn.BatchNorm1d(5, momentum=1.0), nn.Linear(5, 3))
    clients = make_clients(2)
    result = train(model=model, clients=clients, method="fedavg", rounds=1, local_steps=1, batch_size=30)
    expected = torch.stack([x.mean(0) for x, _ in clients]).mean(0)
    torch.testing.assert_close(result.model[0].running_mean, expected)


def test_client_whose_buffers_are_not_finite_is_dropped():
    class WithBuffer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)
            self.register_buffer("largest", torch.zeros(1))

        def forward(self, x):
            self.largest.copy_(x.max().exp())
            return self.linear(x.clamp(max=10))

    clients = make_clients()
    clients[1] = (clients[1][0] + 1000, clients[1][1])
    result = train(model=WithBuffer(), clients=clients, method="fedavg", rounds=1)
    assert set(result.history.rounds[0].dropped) == {1}
    assert torch.isfinite(result.model.largest).all()


def test_global_generator_and_threads_are_restored():
    model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train(model=model, method="fedavg")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_rounds_without_evaluation_do_not_change_the_others():
    settings = {"dataset": "digits", "clients": 4, "rounds": 5, "local_steps": 3, "validation": 0.1}
    every, some = (fedtaco.run("taco", eval_every=number, **settings) for number in (1, 2))
    assert_same_model(every.model, some.model)
    for record, twin in zip(every.history, some.history, strict=True):
        assert twin.training_loss == record.training_loss
        for name in ("accuracy", "loss", "validation_accuracy", "class_accuracy", "balanced_accuracy"):
            expected = getattr(record, name) if record.round in (2, 4, 5) else None
            assert getattr(twin, name) == expected, name
        assert (twin.evaluation_seconds is None) == (record.round in (1, 3))
    assert some.history[-1].output_accuracy == every.history[-1].output_accuracy is not None


def test_output_of_the_method_is_evaluated_in_the_last_round():
    settings = {"dataset": "digits", "clients": 4, "rounds": 3, "local_steps": 2, "engine": "serial"}
    taco, fedavg = (fedtaco.run(method, **settings).history for method in ("taco", "fedavg"))
    assert [record.output_accuracy is None for record in taco] == [True, True, False]
    assert all(record.output_accuracy is None for record in fedavg)


def test_output_of_a_run_that_a_callback_ends_is_evaluated():
    settings = {"dataset": "digits", "clients": 4, "local_steps": 2, "engine": "serial"}
    stopping = fedtaco.EarlyStopping(patience=1, min_delta=1.0)
    ended = fedtaco.run("taco", rounds=5, callbacks=[stopping], **settings)
    whole = fedtaco.run("taco", rounds=2, **settings)
    assert_same_model(ended.output_model, whole.output_model)
    assert ended.summary["output_accuracy"] == whole.summary["output_accuracy"] is not None
    assert fedtaco.run("fedavg", rounds=5, callbacks=[stopping], **settings).summary["output_accuracy"] is None
