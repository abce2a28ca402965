"""fedtaco.train: a user's own model and clients."""

from __future__ import annotations

import matplotlib as mpl
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot
from torch.utils.data import Dataset

import fedtaco
from fedtaco import InvalidInput, RunStopped, Taco

mpl.use("Agg")


def clients(count=4):
    generator = torch.Generator().manual_seed(1)
    made = []
    for client in range(count):
        y = torch.randint(0, 3, (30,), generator=generator)
        y[:15] = client % 3
        made.append((torch.randn(30, 5, generator=generator) + y[:, None], y))
    return made


def train(**changes):
    settings = {"rounds": 3, "local_steps": 4, "local_lr": 0.1, "method": Taco()} | changes
    own = settings.pop("clients", None) or clients()
    model = settings.pop("model", None) or nn.Linear(5, 3)
    return fedtaco.train(model, own, test=clients(1)[0], **settings)


def test_a_history_can_be_tabled_and_plotted(tmp_path):
    seen = []
    result = train(on_round=seen.append)
    assert seen == result.history.rounds
    assert [row["round"] for row in result.history.table()] == [1, 2, 3]
    assert len(result.history.client_table()) == 12
    assert result.history.column("accuracy")[-1] == result.history.final_accuracy
    result.history.plot(tmp_path / "curve.png", label="TACO")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_the_model_saves_and_loads(tmp_path):
    result = train()
    result.save(tmp_path / "model.safetensors")
    loaded = fedtaco.load_model(nn.Linear(5, 3), tmp_path / "model.safetensors")
    x = clients(1)[0][0]
    assert torch.equal(loaded(x), result.model(x))


def test_models_with_buffers_and_dropout_work():
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
    first, second = train(model=model), train(model=model)
    for (name, one), other in zip(first.model.state_dict().items(), second.model.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert not torch.equal(first.model[1].running_mean, model[1].running_mean)


def test_buffers_are_averaged_over_clients():
    model = nn.Sequential(nn.BatchNorm1d(5, momentum=1.0), nn.Linear(5, 3))
    own = clients(2)
    result = train(model=model, clients=own, method="fedavg", rounds=1, local_steps=1, batch_size=30)
    expected = torch.stack([x.mean(0) for x, _ in own]).mean(0)
    torch.testing.assert_close(result.model[0].running_mean, expected)


def test_a_client_with_broken_buffers_is_left_out():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)
            self.register_buffer("largest", torch.zeros(1))

        def forward(self, x):
            self.largest.copy_(x.max().exp())
            return self.linear(x.clamp(max=10))

    own = clients()
    own[1] = (own[1][0] + 1000, own[1][1])
    result = train(model=Counter(), clients=own, method="fedavg", rounds=1)
    assert set(result.history.rounds[0].dropped) == {1}
    assert torch.isfinite(result.model.largest).all()


def test_the_callers_generator_and_threads_are_left_alone():
    model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train(model=model, method="fedavg")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_clients_may_do_different_numbers_of_steps():
    assert len(train(local_steps=[1, 2, 3, 4]).history) == 3


def test_regression_has_a_loss_and_no_accuracy():
    own = [(torch.randn(20, 5), torch.randn(20, 1)) for _ in range(3)]
    result = fedtaco.train(nn.Linear(5, 1), own, own[0], method="fedavg", rounds=2, local_steps=2, loss=nn.MSELoss())
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0


@pytest.mark.parametrize("outputs", [(), (1,)])
def test_a_single_logit_has_a_loss_and_no_accuracy(outputs):
    own = [(torch.randn(20, 5), torch.arange(20) % 2) for _ in range(3)]
    model = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0) if outputs == () else nn.Identity())

    def loss(prediction, y):
        return binary_cross_entropy_with_logits(prediction.flatten(), y.float())

    result = fedtaco.train(model, own, own[0], method="fedavg", rounds=1, local_steps=2, loss=loss)
    assert result.history.final_accuracy is None
    assert result.history.rounds[-1].loss > 0


def test_every_place_of_a_sequence_is_classified():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.scale * one_hot(x, 3).float().movedim(-1, 1)

    x = torch.arange(40).reshape(8, 5) % 3
    y = torch.where(torch.arange(5) < 4, x, (x + 1) % 3)
    result = fedtaco.train(Fixed(), [(x, y)], (x, y), method="fedavg", rounds=1, local_steps=1)
    assert result.history.final_accuracy == 0.8


class Jittered(Dataset):
    """Samples with noise, as a random crop or flip has it."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, place):
        return self.x[place] + torch.randn(5), self.y[place]


@pytest.mark.parametrize("method", ["taco", "stem"])
def test_what_a_dataset_draws_depends_on_neither_engine_nor_the_past(method):
    ends = []
    for engine in ("serial", "pool", "serial", "batched"):
        torch.rand(len(ends))
        own = [Jittered(*part) for part in clients()]
        model = nn.Linear(5, 3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        result = train(model=model, clients=own, method=method, engine=engine)
        ends.append(torch.cat([p.flatten() for p in result.model.state_dict().values()]))
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])
    torch.testing.assert_close(ends[0], ends[3])


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_every_client_round_and_step_draws_its_own_samples(engine):
    class Drawing(Jittered):
        def __getitem__(self, place):
            seen.append(float(torch.rand(())))
            return self.x[place], self.y[place]

    seen = []
    train(clients=[Drawing(*part) for part in clients(2)], method="fedavg", rounds=2, engine=engine, batch_size=8)
    rounds = seen[-2 * 2 * 4 * 8 :]
    assert len(set(rounds)) == len(rounds)


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_a_client_with_one_sample_can_have_batch_norm(engine):
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    x, y = clients(1)[0]
    result = train(model=model, clients=[(x[:1], y[:1]), *clients(2)], engine=engine)
    assert result.history.final_accuracy is not None


def test_divergence_stops_with_what_was_recorded():
    with pytest.raises(RunStopped, match=r"Round \d+ of fedavg.*diverged.*smaller local rate") as stop:
        fedtaco.train(
            nn.Linear(5, 1, bias=False),
            [(torch.randn(20, 5), torch.randn(20, 1)) for _ in range(2)],
            (torch.randn(20, 5), torch.randn(20, 1)),
            method="fedavg",
            rounds=500,
            local_steps=5,
            local_lr=10.0,
            loss=nn.MSELoss(),
        )
    assert 0 < len(stop.value.history) < 500


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 0}, "rounds is 0; it must be a whole number at least 1"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"local_steps": [1, 2]}, "local_steps lists 2 numbers for 4 clients"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"local_lr": -0.1}, "local_lr is -0.1"),
        ({"local_lr": float("nan")}, "local_lr is nan"),
        ({"participation": 0.0}, "participation is 0.0"),
        ({"participation": 1.5}, "participation is 1.5"),
        ({"weighting": "size"}, "weighting is 'size'"),
        ({"method": "tacco"}, "did you mean 'taco'"),
        ({"detector": "gaurd"}, "There is no detector 'gaurd'"),
        ({"clients": [*clients(), (torch.empty(0, 5), torch.empty(0))]}, "Client 4 has no samples"),
        ({"clients": [(torch.randn(9, 7), torch.zeros(9))]}, r"samples of client 0 \(inputs \(2, 7\)"),
        ({"clients": [(torch.randn(9, 5), torch.full((9,), 3))]}, "Target 3 is out of bounds"),
        ({"clients": [["a", "b", "c"]]}, "Cannot read samples from list"),
        ({"model": torch.nn.LazyLinear(3)}, "lazy layers"),
        ({"model": torch.relu}, "give a torch.nn.Module"),
    ],
)
def test_bad_input_is_told_in_a_sentence(changes, words):
    with pytest.raises(InvalidInput, match=words):
        train(**changes)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16])
def test_inputs_are_taken_in_the_models_type(kind):
    assert len(train(clients=[(x.to(kind), y.int()) for x, y in clients()]).history) == 3


def test_a_method_may_be_given_as_a_class_or_by_name():
    model = nn.Linear(5, 3)
    histories = [train(model=model, method=method).history.column("loss") for method in (Taco, Taco(), "taco")]
    assert histories[0] == histories[1] == histories[2]


def test_a_dataset_must_yield_pairs():
    class Dicts(torch.utils.data.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return {"x": 1}

    with pytest.raises(InvalidInput, match="yields a dict; it must yield pairs"):
        train(clients=[Dicts()])


def test_an_error_inside_training_names_the_client():
    def loss(prediction, target):
        if (target == 77).any():
            raise ValueError("no such ward")
        return nn.functional.cross_entropy(prediction, target)

    own = clients()
    own[2] = (own[2][0], torch.full((30,), 77))
    with pytest.raises(ValueError, match="no such ward") as error:
        train(clients=own, loss=loss, method="fedavg")
    assert error.value.__notes__ == ["This happened to client 2 in round 1 of fedavg."]


def test_records_read_well():
    history = train().history
    assert repr(history).startswith("<History of 3 rounds")
    assert history[-1].round == 3
    with pytest.raises(InvalidInput, match="did you mean 'accuracy'"):
        history.column("acuracy")


def test_no_clients_are_refused():
    with pytest.raises(InvalidInput, match="There are no clients"):
        fedtaco.train(nn.Linear(5, 3), [], rounds=1, local_steps=1)


def test_every_step_draws_its_own_dropout():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)
            self.seen = []

        def forward(self, x):
            if self.training:
                self.seen.append(float(torch.rand(())))
            return self.linear(x)

        def __deepcopy__(self, memo):
            return self

    model = Noisy()
    train(model=model, clients=clients(2), method="fedavg", rounds=2)
    _, *draws = model.seen
    assert len(draws) == len(set(draws)) == 2 * 2 * 4
