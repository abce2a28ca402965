"""fedtaco.train: a user's own model and clients, and input that is not valid."""

from __future__ import annotations

import pytest
import torch
from small_training import make_clients, train
from torch import nn

import fedtaco
from fedtaco import InvalidInput, RunStopped, Taco


def test_clients_may_take_different_numbers_of_steps():
    assert len(train(local_steps=[1, 2, 3, 4]).history) == 3


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
        ({"local_steps": [1, 2]}, "local_steps lists 2 numbers for 4 clients"),
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
