from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtaco import InvalidInput
from fedtaco.data import PARTITIONS, partition


def labels_of(classes, per_class=40):
    return np.repeat(np.arange(classes), per_class)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(PARTITIONS)),
    st.integers(2, 12),
    st.integers(4, 30),
    st.integers(0, 1000),
)
def test_every_sample_lands_once(spec, classes, clients, seed):
    labels = labels_of(classes, per_class=60)
    try:
        result = partition(spec, labels, clients, seed)
    except InvalidInput:
        return
    assert len(result.indices) == clients
    assert sorted(np.concatenate(result.indices)) == list(range(len(labels)))


def test_groups_are_the_papers():
    labels = labels_of(10, per_class=200)
    result = partition("groups", labels, clients=20, seed=3)
    assert [result.groups.count(name) for name in "ABC"] == [7, 7, 6]
    held = {"A": 1, "B": 2, "C": 5}
    for group, indices in zip(result.groups, result.indices, strict=True):
        assert len(np.unique(labels[indices])) == held[group]
    sizes = [len(indices) for indices in result.indices]
    assert max(sizes) < 4 * min(sizes)


@pytest.mark.parametrize("seed", range(20))
def test_groups_cover_every_class_even_when_labels_are_scarce(seed):
    labels = labels_of(10)
    result = partition("groups", labels, clients=4, seed=seed)
    assert set(labels[np.concatenate(result.indices)]) == set(range(10))
    assert sorted(len(np.unique(labels[indices])) for indices in result.indices) == [1, 2, 2, 5]


@pytest.mark.parametrize("counts", [(5000, 5000), (24720, 7841)])
@pytest.mark.parametrize("seed", range(5))
def test_groups_on_two_classes(counts, seed):
    labels = np.repeat([0, 1], counts)
    result = partition("groups", labels, clients=20, seed=seed)
    for group, indices in zip(result.groups, result.indices, strict=True):
        share = max(np.bincount(labels[indices], minlength=2)) / len(indices)
        assert share == pytest.approx({"A": 1.0, "B": 0.9, "C": 0.5}[group], abs=0.01)
    assert {int(labels[indices][0]) for g, indices in zip(result.groups, result.indices, strict=True) if g == "A"} == {
        0,
        1,
    }
    assert sum(map(len, result.indices)) == sum(counts)


def test_a_class_too_rare_for_groups_is_refused():
    with pytest.raises(InvalidInput, match="cannot be split into groups"):
        partition("groups", np.repeat([0, 1], (990, 10)), clients=20, seed=0)


def test_same_seed_same_partition():
    labels = labels_of(10)
    first, second, other = (partition("groups", labels, 20, seed).indices for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("spec", "clients", "words"),
    [
        ("grups", 5, "did you mean 'groups'"),
        ("iid", 500, "clients is 500, more than the 400 training samples"),
        ("groups", 3, "fewer than the 10"),
    ],
)
def test_impossible_partitions_are_refused(spec, clients, words):
    with pytest.raises(InvalidInput, match=words):
        partition(spec, labels_of(10), clients, seed=0)
