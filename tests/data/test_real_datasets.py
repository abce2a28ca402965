"""The real datasets, if FEDTACO_DATA names a folder that contains them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedtaco.data import load_dataset

COUNTS = {
    "mnist": (60000, 10000),
    "fmnist": (60000, 10000),
    "cifar10": (50000, 10000),
    "adult": (32561, 16281),
    "adult:standardized": (32561, 16281),
    "femnist": (41434, 4756),
    "shakespeare": (475670, 44113),
}


@pytest.mark.parametrize("name", COUNTS)
def test_real_files_have_the_published_counts(real_data, name):
    data = load_dataset(name, real_data(name))
    assert (len(data.train), len(data.test)) == COUNTS[name]
    assert tuple(data.train.x.shape[1:]) == data.info.shape
    assert data.train.y.max() < data.info.classes
    assert data.train.y.unique().numel() >= min(data.info.classes, 60)


def test_real_adult_has_the_published_shares(real_data):
    data = load_dataset("adult", real_data("adult"))
    assert int(data.train.y.sum()) == 7841
    assert int(data.test.y.sum()) == 3846
    per_person = data.train.x.sum(1)
    assert per_person.max() == 14
    assert float(data.train.x.float().mean()) == pytest.approx(13.87 / 123, abs=0.001)


def test_real_images_are_the_right_way_up(real_data):
    """Trousers are a tall shape in the middle of the mean image, and pictures of ships are more blue than red."""
    data = load_dataset("fmnist", real_data("fmnist"))
    trousers = data.train.x[data.train.y == 1].float().mean((0, 1))
    assert trousers[:, 10:18].mean() > 3 * trousers[:, :6].mean()
    cifar = load_dataset("cifar10", real_data("cifar10"))
    ships = cifar.train.x[cifar.train.y == 8].float().mean(0)
    assert ships[2].mean() > ships[0].mean()


def test_cifar10_needs_little_memory(real_data):
    script = """
import torch
from fedtaco.data import load_dataset, partition_dataset
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before = resident()
data = load_dataset("cifar10")
parts = partition_dataset(data, "groups", 20, 0).indices
for client in [data.train.subset(part) for part in parts]:
    for indices in torch.arange(len(client)).split(64):
        client.batch(indices)
print(resident() - before)
"""
    load_dataset("cifar10", real_data("cifar10"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 250
