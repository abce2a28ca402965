"""fedtaco.train: a user's own model and clients, and input that is not valid."""

from __future__ import annotations

import pytest
import torch
from run_helpers import assert_same_result
from small_training import make_clients, train
from torch import nn

import fedtaco
from fedtaco import InvalidInput, RunStopped, Taco


def test_clients_may_take_different_numbers_of_steps():
    assert len(train(local_steps=[1, 2, 3, 4]).history) == 3


@pytest.mark.parametrize("engine", ["serial", "batched"])
@pytest.mark.parametrize("method", ["scaffold", "taco"])
def test_local_epochs_take_steps_in_proportion_to_the_samples(method, engine):
    sizes = (30, 7, 16, 1)
    clients = [(x[:size], y[:size]) for (x, y), size in zip(make_clients(), sizes, strict=True)]
    model, settings = nn.Linear(5, 3), {"method": method, "engine": engine, "batch_size": 8}
    by_epochs = train(model=model, clients=clients, local_steps=None, local_epochs=2, **settings)
    by_steps = train(model=model, clients=clients, local_steps=[8, 2, 4, 1], **settings)
    assert_same_result(by_steps, by_epochs)
    other = train(model=model, clients=clients, local_steps=8, **settings)
    assert not torch.equal(other.model.weight, by_epochs.model.weight)


def test_the_largest_number_of_steps_is_k():
    """γK of TACO's correction is γ · 8."""
    model, clients = nn.Linear(5, 3), [make_clients()[0], *((x[:8], y[:8]) for x, y in make_clients(3))]
    settings = {"model": model, "clients": clients, "local_steps": None, "local_epochs": 2, "batch_size": 8}
    assert_same_result(train(method=Taco(), **settings), train(method=Taco(gamma=1 / 8), **settings))


def test_method_may_be_a_class_an_instance_or_a_name():
    model = nn.Linear(5, 3)
    losses = [train(model=model, method=method).history.column("loss") for method in (Taco, Taco(), "taco")]
    assert losses[0] == losses[1] == losses[2]


def test_divergence_stops_the_run_and_keeps_its_history():
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
    ("changes", "message"),
    [
        ({"rounds": 0}, "rounds is 0; it must be a whole number at least 1"),
        ({"local_steps": 0}, "local_steps is 0"),
        ({"local_steps": [1]}, "local_steps lists 1 number for 4 clients; give one for each"),
        ({"local_epochs": 1}, "Both local_steps and local_epochs are given; give one of them."),
        ({"local_steps": None}, "Neither local_steps nor local_epochs is given; give one of them."),
        ({"local_steps": None, "local_epochs": 0}, "local_epochs is 0; it must be a whole number at least 1"),
        (
            {"local_steps": None, "local_epochs": 1_000_000, "clients": [(torch.randn(60, 5), torch.zeros(60).long())]},
            "local_epochs times the number of samples of the largest client is 60,000,000; a client may train on at",
        ),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"local_lr": -0.1}, "local_lr is -0.1"),
        ({"local_lr": float("nan")}, "local_lr is nan"),
        ({"participation": 0.0}, "participation is 0.0"),
        ({"participation": 1.5}, "participation is 1.5"),
        ({"weighting": "size"}, "weighting is 'size'"),
        ({"method": "tacco"}, "did you mean 'taco'"),
        ({"detector": "gaurd"}, "There is no detector 'gaurd'"),
        ({"clients": [*make_clients(), (torch.empty(0, 5), torch.empty(0))]}, "Client 4 has no samples"),
        ({"clients": [(torch.randn(9, 7), torch.zeros(9))]}, r"samples of client 0 \(inputs \(4, 7\)"),
        ({"clients": [(torch.randn(9, 5), torch.full((9,), 3))]}, "labels are from 3 to 3, but the model has 3"),
        ({"clients": [["a", "b", "c"]]}, "Cannot read samples from list"),
        ({"model": torch.nn.LazyLinear(3)}, "lazy layers"),
        ({"model": torch.relu}, "give a torch.nn.Module"),
    ],
)
def test_invalid_input_is_explained(changes, message):
    with pytest.raises(InvalidInput, match=message):
        train(**changes)


def test_dataset_that_does_not_yield_pairs_is_refused():
    class Dictionaries(torch.utils.data.Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return {"x": 1}

    with pytest.raises(InvalidInput, match="client 0 cannot be read: The samples have the entries x, and none of"):
        train(clients=[Dictionaries()])


def test_no_clients_are_refused():
    with pytest.raises(InvalidInput, match="There are no clients"):
        fedtaco.train(nn.Linear(5, 3), [], rounds=1, local_steps=1)
