"""Data of users' own: joined clients, labels, and fingerprints."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_training import make_clients
from torch.utils.data import Dataset, TensorDataset

from fedtaco import InvalidInput
from fedtaco.data import JoinedSamples, as_samples, fingerprint, hold_out, own_dataset, partition_dataset


class Listed(Dataset):
    """Samples that are not in memory, with noise that is drawn anew."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + torch.randn(self.x.shape[1]), self.y[index]


def numbered(*sizes):
    """Return samples whose only input is their number."""
    x = torch.arange(sum(sizes), dtype=torch.float32)[:, None]
    return [as_samples((part, part[:, 0].long() % 3)) for part in x.split(sizes)]


def test_joined_samples_are_read_in_any_order():
    joined = JoinedSamples(numbered(3, 1, 4))
    indices = torch.tensor([7, 0, 3, 3, 2, 4])
    x, y = joined.batch(indices)
    assert x.flatten().tolist() == indices.tolist()
    assert y.tolist() == (indices % 3).tolist()
    assert len(joined) == 8
    assert [part.tolist() for part in joined.by_client()] == [[0, 1, 2], [3], [4, 5, 6, 7]]


def test_subsets_of_joined_samples_stay_what_they_were():
    parts = numbered(3, 1, 4)
    joined = JoinedSamples(parts)
    assert joined.subset([0, 1, 2]) is parts[0]
    one_client = joined.subset([4, 6])
    assert isinstance(one_client, type(parts[0]))
    assert one_client.batch(torch.tensor([1]))[0].item() == 6
    several = joined.subset([1, 3, 7])
    assert several.batch(torch.tensor([2, 0]))[0].flatten().tolist() == [7, 1]
    assert several.labels().tolist() == [1, 0, 1]
    assert several.subset([0, 1]).batch(torch.tensor([1]))[0].item() == 3
    assert len(several) == 3


def test_held_out_samples_are_those_that_clients_lose():
    data = own_dataset("numbers", numbered(10, 20), None, per_client=True)
    parts, held_out = hold_out(partition_dataset(data, "by client", 2, 0).indices, 0.2, seed=0)
    clients = [data.train.subset(part) for part in parts]
    kept = [client.batch(torch.arange(len(client)))[0].flatten().tolist() for client in clients]
    indices = np.concatenate(held_out)
    lost = data.train.subset(indices).batch(torch.arange(len(indices)))[0].flatten().tolist()
    assert [len(one) for one in kept] == [8, 16]
    assert sorted([*kept[0], *kept[1], *lost]) == list(range(30))
    assert max(kept[0]) < 10 <= min(kept[1])


@pytest.mark.parametrize(
    ("targets", "classes"),
    [
        (torch.tensor([0, 3, 1]), 4),
        (torch.tensor([0.0, 3.0, 1.0]), 0),
        (torch.tensor([[0], [3], [1]]), 0),
        (torch.tensor([0, -100, 1]), 0),
        (torch.tensor([0, 50_000, 1]), 0),
        (torch.tensor([False, True, True]), 2),
    ],
)
def test_number_of_classes(targets, classes):
    assert own_dataset("x", (torch.zeros(3, 2), targets), None, per_client=False).info.classes == classes


def test_classes_of_the_test_set_count_too():
    train, test = (torch.zeros(2, 1), torch.tensor([0, 1])), (torch.zeros(2, 1), torch.tensor([0, 4]))
    assert own_dataset("x", train, test, per_client=False).info.classes == 5
    assert own_dataset("x", [Listed(*train)], None, per_client=True).info.classes == 0


def digest(clients, test=None, kind=lambda *pair: pair, per_client=True):
    return fingerprint(own_dataset("x", [kind(*pair) for pair in clients], test, per_client=per_client))


def test_fingerprint_notices_every_change():
    clients = make_clients(3)
    (x, y), *others = clients
    changed_input, changed_label = x.clone(), y.clone()
    changed_input[-1, -1] += 1e-6
    changed_label[0] = (changed_label[0] + 1) % 3
    digests = [
        digest(clients),
        digest(clients, test=clients[0]),
        digest(clients[::-1]),
        digest(clients[:2]),
        digest([(changed_input, y), *others]),
        digest([(x, changed_label), *others]),
        digest([(x.double(), y), *others]),
        digest([(x.reshape(30, 5, 1), y), *((a.reshape(30, 5, 1), b) for a, b in others)]),
        digest([(torch.cat([x, others[0][0]]), torch.cat([y, others[0][1]])), others[1]]),
    ]
    assert len(set(digests)) == len(digests)
    assert digest(clients) == digest(make_clients(3)) == digest(clients, kind=TensorDataset)


def test_fingerprint_of_data_that_are_not_in_memory_is_reproducible_and_draws_nothing():
    clients = make_clients(3)
    first = digest(clients, kind=Listed)
    torch.manual_seed(8)
    before = torch.random.get_rng_state()
    assert digest(clients, kind=Listed) == first
    assert torch.equal(torch.random.get_rng_state(), before)
    clients[1][0][0] += 1
    assert digest(clients, kind=Listed) != first


def test_partition_of_one_set_without_labels():
    data = own_dataset("x", Listed(*make_clients(1)[0]), None, per_client=False)
    assert [len(part) for part in partition_dataset(data, "iid", 4, 0).indices] == [8, 8, 7, 7]
    with pytest.raises(InvalidInput, match="The partition shards:2 needs class labels in memory"):
        partition_dataset(data, "shards:2", 4, 0)
