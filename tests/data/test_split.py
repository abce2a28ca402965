"""fedtaco.split: the same clients in every form, and partitions that need labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from run_helpers import assert_same_result
from small_training import Pairs, WithTargets, make_clients, train
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import Samples

MODEL = nn.Linear(5, 3)
X, Y = (torch.cat(parts) for parts in zip(*make_clients(5), strict=True))
FORMS = [
    WithTargets,
    lambda x, y: DataLoader(WithTargets(x, y)),
    lambda x, y: (pd.DataFrame(x.numpy()), pd.Series(y.numpy())),
]


@pytest.mark.parametrize("spec", ["iid", "quantity:0.5", "noise:0.1", "dirichlet:0.5", "shards:2", "groups"])
@pytest.mark.parametrize("form", FORMS, ids=["Dataset", "DataLoader", "frame"])
def test_split_gives_the_same_clients_in_every_form(form, spec):
    for expected, client in zip(*(fedtaco.split(data, spec, 5) for data in ((X, Y), form(X, Y))), strict=True):
        assert isinstance(client, Samples)
        everything = torch.arange(len(expected))
        for part, same in zip(expected.batch(everything), client.batch(everything), strict=True):
            assert torch.equal(part, same)


@pytest.mark.parametrize("spec", ["iid", "quantity:0.5", "noise:0.1"])
@pytest.mark.parametrize(
    "data", [(X, X[:, :1]), Pairs(X, X[:, :1]), ((X, X), X[:, 0])], ids=["pair", "Dataset", "tuple"]
)
def test_samples_without_classes_are_split(spec, data):
    clients = fedtaco.split(data, spec, 5)
    assert sum(map(len, clients)) == len(X)
    targets = torch.cat([client.batch(torch.arange(len(client)))[1].flatten() for client in clients])
    assert torch.equal(targets.sort().values, X[:, 0].sort().values)


def test_the_number_of_clients_may_be_one_of_numpy():
    clients = fedtaco.split((X, Y), "iid", np.int64(5))
    assert list(map(len, clients)) == list(map(len, fedtaco.split((X, Y), "iid", 5)))


def test_labels_of_subsets_and_concatenations_are_known():
    whole = WithTargets(X, Y)
    parts = ConcatDataset([Subset(whole, range(100, 150)), Subset(whole, torch.arange(100))])
    clients = fedtaco.split(parts, "shards:1", 3)
    assert [client.labels().unique().tolist() for client in clients] != [[0, 1, 2]] * 3
    for client in clients:
        assert torch.equal(client.labels(), client.batch(torch.arange(len(client)))[1])


@pytest.mark.parametrize(
    ("data", "spec", "message"),
    [
        (Pairs(X, Y), "dirichlet:0.5", "dirichlet:0.5 needs one integer label .* no attribute 'targets' or 'labels'"),
        ((X, X[:, 0]), "shards:2", r"shards:2 needs one integer label .* float32 of shape \(150,\); iid, quantity and"),
        (Pairs(X, Y), "dirichlet", "dirichlet takes a number above 0"),
        ((X, Y), "natural", "has no natural partition"),
        ((X[:3], Y[:3]), "iid", "clients is 5, more than the 3"),
        ((X, Y), len, "it must be text, such as 'iid', or name your own function"),
    ],
    ids=["Dataset", "regression", "partition", "natural", "clients", "function"],
)
def test_partitions_that_are_not_possible_are_refused(data, spec, message):
    with pytest.raises(InvalidInput, match=message):
        fedtaco.split(data, spec, 5)


def test_split_of_a_dataset_trains():
    clients, in_memory = (fedtaco.split(data, "dirichlet:0.5", 5) for data in (WithTargets(X, Y), (X, Y)))
    assert_same_result(*(train(model=MODEL, clients=own, engine="serial") for own in (clients, in_memory)))


class CountedLabels:
    """A sequence of labels that counts how many are read."""

    def __init__(self, labels):
        self.labels, self.reads = labels, 0

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        label = self.labels[index]
        self.reads += 1
        return label


@pytest.mark.parametrize(
    "make_parts",
    [
        lambda data: fedtaco.split(data, "iid", 30),
        lambda data: [Subset(data, range(start, start + 5)) for start in range(0, 150, 5)],
        lambda data: [Subset(Subset(data, range(150)), [start, start + 1]) for start in range(30)],
    ],
    ids=["split", "subsets", "subsets of a subset"],
)
def test_labels_of_a_dataset_are_not_read_again_for_each_client(make_parts):
    data = WithTargets(X, Y)
    data.targets = CountedLabels(Y.tolist())
    fedtaco.train(MODEL, make_parts(data), rounds=1, local_steps=1)
    assert 0 < data.targets.reads <= 3 * len(X)
