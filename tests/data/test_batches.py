"""Batches: which samples they contain, and those of several clients stacked."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedtaco.data import StackedBatches, as_samples, batch_plan, have_equal_shapes


def test_batches_are_whole_passes_over_the_samples():
    plan = batch_plan(np.random.default_rng(0), count=7, steps=5, batch_size=4).flatten()
    assert sorted(plan[:7].tolist()) == list(range(7))
    assert sorted(plan[7:14].tolist()) == list(range(7))
    assert plan[:7].tolist() != plan[7:14].tolist()


def test_a_client_smaller_than_a_batch_repeats_its_samples():
    plan = batch_plan(np.random.default_rng(0), count=3, steps=2, batch_size=8)
    assert plan.shape == (2, 8)
    assert np.bincount(plan.flatten()).min() >= 5


def stacked(clients):
    plans = [torch.tensor([[0, 1], [2, 0]])] * len(clients)
    return StackedBatches(clients, plans, seeds=[0] * len(clients))


def test_several_inputs_are_stacked_whether_or_not_clients_share_tensors():
    first, second, y = torch.arange(12).reshape(6, 2), torch.rand(6, 3), torch.arange(6)
    whole = as_samples(({"a": first, "b": second}, y))
    shared = [whole.subset([0, 1, 2]), whole.subset([3, 4, 5])]
    separate = [as_samples(({"a": first[rows], "b": second[rows]}, y[rows])) for rows in (slice(0, 3), slice(3, 6))]
    expected = torch.tensor([[2, 0], [5, 3]])
    for clients in (shared, separate):
        x, targets = stacked(clients).at(1)
        assert torch.equal(x["a"], first[expected])
        assert torch.equal(x["b"], second[expected])
        assert torch.equal(targets, expected)


def pad(samples):
    """A collate function whose batches have the length of the longest sample."""
    x, y = zip(*samples, strict=True)
    return nn.utils.rnn.pad_sequence(list(x), batch_first=True), torch.stack(y)


def test_clients_are_stacked_only_if_shapes_are_equal():
    pair = torch.zeros(4, 3), torch.zeros(4)
    assert have_equal_shapes([as_samples(pair), as_samples((pair[0].double(), pair[1]))])
    assert have_equal_shapes([as_samples(pair), as_samples(DataLoader(TensorDataset(*pair)))])
    assert not have_equal_shapes([as_samples(pair), as_samples((torch.zeros(4, 2), pair[1]))])
    assert not have_equal_shapes([as_samples(pair), as_samples((pair[0], torch.zeros(4, 1)))])
    one, other = ({"a": pair[0], "b": pair[0]}, {"b": pair[0], "a": pair[0]})
    assert not have_equal_shapes([as_samples((one, pair[1])), as_samples((other, pair[1]))])
    assert not have_equal_shapes([as_samples(DataLoader(TensorDataset(*pair), collate_fn=pad))])
