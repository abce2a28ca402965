from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fedtaco import InvalidInput
from fedtaco.data import partition


def labels_of(classes, per_class=40):
    return np.repeat(np.arange(classes), per_class)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["groups", "iid", "dirichlet:0.5", "dirichlet-client:0.3", "shards:2", "quantity:0.2"]),
    st.integers(2, 12),
    st.integers(4, 30),
    st.integers(0, 1000),
)
def test_every_sample_is_assigned_once(spec, classes, clients, seed):
    labels = labels_of(classes, per_class=60)
    try:
        result = partition(spec, labels, clients, seed)
    except InvalidInput:
        return
    assert len(result.indices) == clients
    assert sorted(np.concatenate(result.indices)) == list(range(len(labels)))


def test_groups_are_those_of_the_paper():
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


def sizes_of(result):
    return [len(indices) for indices in result.indices]


def distances(labels, result):
    classes = labels.max() + 1
    overall = np.bincount(labels, minlength=classes) / len(labels)
    own = [np.bincount(labels[indices], minlength=classes) / len(indices) for indices in result.indices]
    return np.mean([np.abs(mix - overall).sum() / 2 for mix in own])


@pytest.mark.parametrize("form", ["dirichlet", "dirichlet-client"])
def test_a_smaller_phi_is_more_skewed(form):
    labels = labels_of(10, per_class=500)
    skews = [distances(labels, partition(f"{form}:{phi}", labels, 20, seed=1)) for phi in (0.1, 1.0, 100)]
    assert skews[0] > skews[1] > skews[2]
    assert skews[0] > 0.5
    assert skews[2] < 0.1


def test_dirichlet_leaves_nobody_below_ten():
    labels = np.repeat([0, 1], (24720, 7841))
    for seed in range(3):
        result = partition("dirichlet:0.1", labels, 20, seed)
        assert min(sizes_of(result)) >= 10
        assert result.notes == []


def test_dirichlet_moves_samples_and_says_so_if_every_draw_is_rejected(monkeypatch):
    monkeypatch.setattr("fedtaco.data.partitions.skew.MAX_DRAWS", 50)
    labels = np.repeat([0, 1], (2472, 784))
    result = partition("dirichlet:0.05", labels, 100, seed=0)
    assert min(sizes_of(result)) >= 10
    assert "were moved from the largest" in result.notes[0]
    assert sorted(np.concatenate(result.indices)) == list(range(len(labels)))


def test_dirichlet_per_client_has_equal_sizes():
    sizes = sizes_of(partition("dirichlet-client:0.3", labels_of(10), 20, seed=0))
    assert max(sizes) - min(sizes) <= 1


def test_shards_bound_the_labels_of_a_client():
    labels = labels_of(10, per_class=100)
    result = partition("shards:2", labels, 20, seed=0)
    assert all(len(np.unique(labels[indices])) <= 2 for indices in result.indices)
    assert set(sizes_of(result)) == {50}


def test_quantity_skews_sizes_and_not_labels():
    labels = labels_of(10, per_class=1000)
    result = partition("quantity:0.5", labels, 10, seed=0)
    assert max(sizes_of(result)) > 5 * min(sizes_of(result))
    large = max(result.indices, key=len)
    assert np.bincount(labels[large]).std() < 0.1 * np.bincount(labels[large]).mean()


def test_natural_keeps_users_whole_and_sizes_even():
    users = np.repeat(np.arange(30), np.arange(1, 31)).astype(np.int32)
    result = partition("natural", np.zeros(len(users), int), 5, seed=0, users=users)
    homes = [set(users[indices]) for indices in result.indices]
    assert sum(len(home) for home in homes) == 30
    assert max(sizes_of(result)) - min(sizes_of(result)) <= 30
    assert sorted(np.concatenate(result.indices)) == list(range(len(users)))


def test_natural_needs_users_and_enough_of_them():
    with pytest.raises(InvalidInput, match="does not record whose"):
        partition("natural", labels_of(10), 5, seed=0)
    with pytest.raises(InvalidInput, match="more than the 2 users"):
        partition("natural", labels_of(2), 5, seed=0, users=labels_of(2).astype(np.int32))


def test_a_flower_partitioner_works():
    pytest.importorskip("flwr_datasets")
    labels = labels_of(10)
    plain = "flwr:PathologicalPartitioner,num_classes_per_partition=2"
    result = partition(f"{plain},class_assignment_mode=first-deterministic", labels, 10, seed=0)
    assert all(len(np.unique(labels[indices])) == 2 for indices in result.indices)
    assert sorted(np.concatenate(result.indices)) == list(range(len(labels)))
    assert any("will NOT be used" in note for note in partition(plain, labels, 10, seed=42).notes)
    for spec, words in [
        ("flwr:Patological", "There is no Flower partitioner"),
        ("flwr:IidPartitioner,bins=3", "There is no argument of IidPartitioner 'bins'"),
        ("flwr:PathologicalPartitioner,num_classes_per_partition=99", "PathologicalPartitioner failed"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            partition(spec, labels, 10, seed=0)


@pytest.mark.parametrize("spec", ["dirichlet", "dirichlet:", "dirichlet:-1", "dirichlet:x", "quantity:nan", "shards:0"])
def test_a_missing_or_invalid_number_is_refused(spec):
    with pytest.raises(InvalidInput, match="takes a number above 0"):
        partition(spec, labels_of(10), 5, seed=0)


def test_fractions_of_a_shard_are_refused():
    with pytest.raises(InvalidInput, match="whole number of shards"):
        partition("shards:1.5", labels_of(10), 5, seed=0)


@pytest.mark.parametrize(
    ("labels", "clients", "seed", "words"),
    [
        (labels_of(3), 0, 0, "clients is 0"),
        (labels_of(3), 2.5, 0, "clients is 2.5"),
        (labels_of(3), 5, -1, "seed is -1"),
        (labels_of(3).astype(float), 5, 0, r"dirichlet:0\.5 needs one integer label .* are float64 of shape \(120,\)"),
        (labels_of(3)[:, None], 5, 0, r"needs one integer label .* are int64 of shape \(120, 1\)"),
    ],
)
def test_invalid_arguments_are_refused(labels, clients, seed, words):
    with pytest.raises(InvalidInput, match=words):
        partition("dirichlet:0.5", labels, clients, seed)
