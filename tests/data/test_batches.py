"""Batches: which samples they contain, and those of several clients stacked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedtaco.data import StackedBatches, as_samples, batch_plan, have_equal_shapes, steps_for_epochs


def test_batches_are_whole_passes_over_the_samples():
    plan = batch_plan(np.random.default_rng(0), count=7, steps=5, batch_size=4).flatten()
    assert sorted(plan[:7].tolist()) == list(range(7))
    assert sorted(plan[7:14].tolist()) == list(range(7))
    assert plan[:7].tolist() != plan[7:14].tolist()


def test_a_client_smaller_than_a_batch_repeats_its_samples():
    plan = batch_plan(np.random.default_rng(0), count=3, steps=2, batch_size=8)
    assert plan.shape == (2, 8)
    assert np.bincount(plan.flatten()).min() >= 5


@pytest.mark.parametrize(
    ("batch_size", "count", "expected"),
    [
        (64, 10, 64),
        (256, 3, 256),
        (257, 3, 256),
        (10**6, 3, 256),
        (300, 299, 299),
        (10**6, 1000, 1000),
        (500, 501, 500),
    ],
)
def test_a_batch_has_at_most_the_samples_of_the_client_or_256(batch_size, count, expected):
    plan = batch_plan(np.random.default_rng(0), count=count, steps=2, batch_size=batch_size)
    assert plan.shape == (2, expected)
    repeats = np.bincount(plan.flatten(), minlength=count)
    assert repeats.max() - repeats.min() <= 1


def test_a_capped_batch_contains_every_sample_once():
    for indices in batch_plan(np.random.default_rng(0), count=300, steps=3, batch_size=10**6):
        assert sorted(indices.tolist()) == list(range(300))


def test_epochs_are_counted_in_capped_batches():
    assert steps_for_epochs(5, count=300, batch_size=10**6) == 5
    assert steps_for_epochs(5, count=100, batch_size=10**6) == 2


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
    assert have_equal_shapes([as_samples(pair), as_samples((pair[0].double(), pair[1]))], 4)
    assert have_equal_shapes([as_samples(pair), as_samples(DataLoader(TensorDataset(*pair)))], 4)
    assert not have_equal_shapes([as_samples(pair), as_samples((torch.zeros(4, 2), pair[1]))], 4)
    assert not have_equal_shapes([as_samples(pair), as_samples((pair[0], torch.zeros(4, 1)))], 4)
    one, other = ({"a": pair[0], "b": pair[0]}, {"b": pair[0], "a": pair[0]})
    assert not have_equal_shapes([as_samples((one, pair[1])), as_samples((other, pair[1]))], 4)
    assert not have_equal_shapes([as_samples(DataLoader(TensorDataset(*pair), collate_fn=pad))], 4)


def test_clients_are_stacked_only_if_their_batches_have_the_same_size():
    small, middle, large = (as_samples((torch.zeros(size, 3), torch.zeros(size))) for size in (5, 300, 400))
    assert have_equal_shapes([small, middle, large], 64)
    assert have_equal_shapes([middle, large], 300)
    assert not have_equal_shapes([middle, large], 350)
    assert not have_equal_shapes([small, middle], 10**6)
