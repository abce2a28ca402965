"""Datasets from files: small ones written here, and the real ones where they are at hand."""

from __future__ import annotations

import dataclasses
import gzip
import os
import pickle

import numpy as np
import pytest
import torch
from published import write_cifar100, write_leaf, write_mnist, write_svhn

from fedtaco import InvalidInput
from fedtaco.data import DATASETS, load_dataset
from fedtaco.data.catalog import SHAKESPEARE_LETTERS


@pytest.fixture
def few(monkeypatch):
    """Datasets may be as small as the tests write them."""

    def allow(name, train, test):
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], train=train, test=test))

    return allow


def test_idx_files(tmp_path, few):
    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    data = load_dataset("mnist", tmp_path)
    assert data.train.x.dtype == torch.uint8
    assert data.train.x.shape == (50, 1, 28, 28)
    x, y = data.train.batch(torch.arange(50))
    assert float(x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(x.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert y.dtype == torch.int64


def test_cifar100_has_fine_labels_and_channels_of_their_own(tmp_path, few):
    few("cifar100", 200, 100)
    write_cifar100(tmp_path / "cifar-100-python", 200, 100)
    data = load_dataset("cifar100", tmp_path)
    assert data.train.x.shape == (200, 3, 32, 32)
    assert data.train.y.unique().numel() == 100
    x, _ = data.train.batch(torch.arange(200))
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)


def test_svhn_writes_zero_as_ten(tmp_path, few):
    few("svhn", 40, 20)
    write_svhn(tmp_path / "svhn", 40, 20)
    data = load_dataset("svhn", tmp_path)
    assert data.train.x.shape == (40, 3, 32, 32)
    assert data.train.y[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    from scipy.io import loadmat

    raw = loadmat(tmp_path / "svhn" / "train_32x32.mat")["X"]
    assert np.array_equal(data.train.x[7].numpy(), raw[:, :, :, 7].transpose(2, 0, 1))


def test_femnist_keeps_its_writers(tmp_path):
    ink = [[0.0] * 392 + [1.0] * 392]
    for part, count in (("train", 3), ("test", 1)):
        write_leaf(tmp_path / "femnist" / part, {"ann": (ink * count, [5] * count), "bob": (ink * count, [40] * count)})
    data = load_dataset("femnist", tmp_path)
    assert data.users.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.train.x[0].flatten().tolist() == [0] * 392 + [255] * 392
    digits = load_dataset("femnist:digits", tmp_path)
    assert digits.train.y.tolist() == [5, 5, 5]
    assert digits.users.tolist() == [0, 0, 0]


def test_shakespeare_is_coded_in_leafs_alphabet(tmp_path):
    window = ("To be, or not to be: " * 4)[:80]
    for part in ("train", "test"):
        write_leaf(tmp_path / "shakespeare" / part, {"HAMLET": ([window], ["t"])})
    x, y = load_dataset("shakespeare", tmp_path).train.batch(torch.tensor([0]))
    assert "".join(SHAKESPEARE_LETTERS[code] for code in x[0]) == window
    assert SHAKESPEARE_LETTERS[int(y)] == "t"
    assert len(SHAKESPEARE_LETTERS) == 80


def test_an_unknown_letter_is_named(tmp_path):
    for part in ("train", "test"):
        write_leaf(tmp_path / "shakespeare" / part, {"X": (["é" * 80], ["t"])})
    with pytest.raises(InvalidInput, match="'é', which is not among"):
        load_dataset("shakespeare", tmp_path)


# The cache


def test_the_second_load_reads_the_cache(tmp_path, few, monkeypatch):
    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    first = load_dataset("mnist", tmp_path)
    monkeypatch.setattr("fedtaco.data.store.read_files", lambda *_: pytest.fail("the files were read again"))
    again = load_dataset("mnist", tmp_path)
    assert torch.equal(first.train.x, again.train.x)
    assert first.train.prepare == again.train.prepare
    assert not list(tmp_path.rglob("*.part"))


def test_changed_files_are_read_again(tmp_path, few):
    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    first = load_dataset("mnist", tmp_path)
    write_mnist(tmp_path / "mnist", 50, 20, seed=1)
    assert not torch.equal(first.train.x, load_dataset("mnist", tmp_path).train.x)


def test_a_folder_that_cannot_be_written_is_read_without_a_cache(tmp_path, few, monkeypatch):
    def refuse(*_):
        raise PermissionError

    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    monkeypatch.setattr("fedtaco.data.store.write_cache", refuse)
    assert len(load_dataset("mnist", tmp_path).train) == 50


def test_debians_package_is_found(tmp_path):
    assert "/usr/share/datasets/fashion-mnist" in DATASETS["fmnist"].folders


# What is wrong


def test_a_missing_dataset_says_where_and_how(tmp_path):
    with pytest.raises(InvalidInput) as error:
        load_dataset("cifar10", tmp_path)
    for words in (str(tmp_path), "fedtaco data fetch cifar10", "data_batch_1", "cifar-10-batches-py", "FEDTACO_DATA"):
        assert words in str(error.value)


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def wrong_magic(path):
    path.write_bytes(gzip.compress(b"not an idx file"))


def short(path):
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content[:-7]))


@pytest.mark.parametrize(
    ("damage", "words"),
    [(cut, "a whole gzip file"), (wrong_magic, "an IDX file of bytes"), (short, "50 × 28 × 28 bytes")],
)
def test_a_damaged_file_is_named_and_nothing_cached(tmp_path, few, damage, words):
    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    damage(tmp_path / "mnist" / "train-images-idx3-ubyte.gz")
    with pytest.raises(InvalidInput, match=words) as error:
        load_dataset("mnist", tmp_path)
    assert "train-images-idx3-ubyte.gz" in str(error.value)
    assert not (tmp_path / "cache").exists()


def test_too_few_samples_are_refused(tmp_path):
    write_mnist(tmp_path / "mnist", 50, 20)
    with pytest.raises(InvalidInput, match="holds 50 training samples of MNIST; 60000 were published"):
        load_dataset("mnist", tmp_path)


def test_a_pickle_that_would_run_code_is_refused(tmp_path, few):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    few("cifar100", 10, 10)
    write_cifar100(tmp_path / "cifar-100-python", 10, 10)
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": Evil(), b"fine_labels": [1]}))
    with pytest.raises(InvalidInput, match="expected a CIFAR batch"):
        load_dataset("cifar100", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["{", '{"users": ["a"]}', "[]"])
def test_a_damaged_leaf_file_is_named(tmp_path, text):
    for part in ("train", "test"):
        (tmp_path / "femnist" / part).mkdir(parents=True)
        (tmp_path / "femnist" / part / "data.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"data\.json.*LEAF's JSON"):
        load_dataset("femnist", tmp_path)


def test_an_adult_file_with_missing_columns_is_named(tmp_path):
    (tmp_path / "adult").mkdir()
    for part in ("data", "test"):
        (tmp_path / "adult" / f"adult.{part}").write_text("39, State-gov\n")
    with pytest.raises(InvalidInput, match=r"adult\.data.*15 columns"):
        load_dataset("adult", tmp_path)


# The real files

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
def test_real_files_hold_what_was_published(real_data, name):
    data = load_dataset(name, real_data)
    assert (len(data.train), len(data.test)) == COUNTS[name]
    assert tuple(data.train.x.shape[1:]) == data.info.shape
    assert data.train.y.max() < data.info.classes
    assert data.train.y.unique().numel() >= min(data.info.classes, 60)


def test_real_adult_has_the_published_shares(real_data):
    data = load_dataset("adult", real_data)
    assert int(data.train.y.sum()) == 7841
    assert int(data.test.y.sum()) == 3846
    per_person = data.train.x.sum(1)
    assert per_person.max() == 14
    assert float(data.train.x.float().mean()) == pytest.approx(13.87 / 123, abs=0.001)


def test_real_images_are_the_right_way_up(real_data):
    """The mean image of a trouser is a tall shape in the middle; a truck has a darker bottom than sky."""
    data = load_dataset("fmnist", real_data)
    trousers = data.train.x[data.train.y == 1].float().mean((0, 1))
    assert trousers[:, 10:18].mean() > 3 * trousers[:, :6].mean()
    cifar = load_dataset("cifar10", real_data)
    ships = cifar.train.x[cifar.train.y == 8].float().mean(0)
    assert ships[2].mean() > ships[0].mean()


def test_cifar10_needs_little_memory(real_data):
    import subprocess
    import sys

    script = """
import torch
from fedtaco.data import load_dataset, partition_of
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before = resident()
data = load_dataset("cifar10")
parts = partition_of(data, "groups", 20, 0).indices
for client in [data.train.subset(part) for part in parts]:
    for indices in torch.arange(len(client)).split(64):
        client.batch(indices)
print(resident() - before)
"""
    load_dataset("cifar10", real_data)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 250


def test_a_file_with_another_content_than_its_name_is_refused(tmp_path, few):
    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    labels = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    labels.with_name("train-images-idx3-ubyte.gz").write_bytes(labels.read_bytes())
    with pytest.raises(InvalidInput, match="A file is another one than its name says"):
        load_dataset("mnist", tmp_path)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_damaged_cache_is_made_anew(tmp_path, few, part):
    few("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    whole = load_dataset("mnist", tmp_path).train.x.clone()
    cached = tmp_path / "cache" / "mnist" / f"{part}.safetensors"
    cached.write_bytes(cached.read_bytes()[:200])
    assert torch.equal(load_dataset("mnist", tmp_path).train.x, whole)


def test_leaf_samples_of_the_wrong_size_are_named(tmp_path):
    for part in ("train", "test"):
        write_leaf(tmp_path / "femnist" / part, {"ann": ([[0.1, 0.2]], [5])})
    with pytest.raises(InvalidInput, match=r"samples of 'ann' in .*train are damaged"):
        load_dataset("femnist", tmp_path)
