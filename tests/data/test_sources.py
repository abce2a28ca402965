"""Reading the publishers' files: small files in the published formats, and damaged ones."""

from __future__ import annotations

import gzip
import os
import pickle

import numpy as np
import pytest
import torch
from published import write_cifar100, write_leaf, write_mnist, write_svhn
from scipy.io import loadmat, savemat

from fedtaco import InvalidInput
from fedtaco.data import load_dataset
from fedtaco.data.sources import SOURCES
from fedtaco.data.sources.shakespeare import ALPHABET


@pytest.mark.parametrize("name", SOURCES)
def test_facts_are_complete(name):
    info = SOURCES[name].info
    assert info.name == name
    assert all((info.title, info.model, info.partition, info.licence, info.citation))
    assert bool(info.folders) == bool(info.files) == bool(info.hub) == (name != "digits")


def test_idx_files(tmp_path, set_counts):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    data = load_dataset("mnist", tmp_path)
    assert data.train.x.dtype == torch.uint8
    assert data.train.x.shape == (50, 1, 28, 28)
    x, y = data.train.batch(torch.arange(50))
    assert float(x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(x.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert y.dtype == torch.int64


def test_cifar100_has_fine_labels_and_is_standardized_per_channel(tmp_path, set_counts):
    set_counts("cifar100", 200, 100)
    write_cifar100(tmp_path / "cifar-100-python", 200, 100)
    data = load_dataset("cifar100", tmp_path)
    assert data.train.x.shape == (200, 3, 32, 32)
    assert data.train.y.unique().numel() == 100
    x, _ = data.train.batch(torch.arange(200))
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)


def test_svhn_images_of_another_shape_are_refused(tmp_path, set_counts):
    set_counts("svhn", 40, 20)
    write_svhn(tmp_path / "svhn", 40, 20)
    savemat(tmp_path / "svhn" / "train_32x32.mat", {"X": np.zeros((16, 16, 3, 40), np.uint8), "y": np.ones((40, 1))})
    with pytest.raises(InvalidInput, match=r"inputs of shape \(40, 3, 16, 16\)"):
        load_dataset("svhn", tmp_path)
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(b"not a MATLAB file")
    with pytest.raises(InvalidInput, match=r"train_32x32\.mat.*a MATLAB file with 'X'"):
        load_dataset("svhn", tmp_path)


def test_svhn_reads_the_label_ten_as_zero(tmp_path, set_counts):
    set_counts("svhn", 40, 20)
    write_svhn(tmp_path / "svhn", 40, 20)
    data = load_dataset("svhn", tmp_path)
    assert data.train.x.shape == (40, 3, 32, 32)
    assert data.train.y[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
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


def test_shakespeare_is_encoded_in_leafs_alphabet(tmp_path):
    window = ("To be, or not to be: " * 4)[:80]
    for part in ("train", "test"):
        write_leaf(tmp_path / "shakespeare" / part, {"HAMLET": ([window], ["t"])})
    x, y = load_dataset("shakespeare", tmp_path).train.batch(torch.tensor([0]))
    assert "".join(ALPHABET[code] for code in x[0]) == window
    assert ALPHABET[int(y)] == "t"
    assert len(ALPHABET) == 80


def test_an_unknown_character_is_named(tmp_path):
    for part in ("train", "test"):
        write_leaf(tmp_path / "shakespeare" / part, {"X": (["é" * 80], ["t"])})
    with pytest.raises(InvalidInput, match="'é', which is not one of"):
        load_dataset("shakespeare", tmp_path)


def test_the_folder_of_debians_package_is_searched():
    assert "/usr/share/datasets/fashion-mnist" in SOURCES["fmnist"].info.folders


def test_the_error_for_a_missing_dataset_says_how_to_get_it(tmp_path):
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
    [(cut, "a complete gzip file"), (wrong_magic, "an IDX file of bytes"), (short, "50 × 28 × 28 bytes")],
)
def test_a_damaged_file_is_named_and_nothing_is_cached(tmp_path, set_counts, damage, words):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    damage(tmp_path / "mnist" / "train-images-idx3-ubyte.gz")
    with pytest.raises(InvalidInput, match=words) as error:
        load_dataset("mnist", tmp_path)
    assert "train-images-idx3-ubyte.gz" in str(error.value)
    assert not (tmp_path / "cache").exists()


def test_swapped_files_are_refused(tmp_path, set_counts):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    labels = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    labels.with_name("train-images-idx3-ubyte.gz").write_bytes(labels.read_bytes())
    with pytest.raises(InvalidInput, match=r"inputs of shape \(50, 1\) .* its content does not match its name"):
        load_dataset("mnist", tmp_path)
    assert not (tmp_path / "cache").exists()


def test_too_few_samples_are_refused(tmp_path):
    write_mnist(tmp_path / "mnist", 50, 20)
    with pytest.raises(InvalidInput, match="holds 50 training samples of MNIST; 60000 were published"):
        load_dataset("mnist", tmp_path)


def test_a_pickle_that_would_run_code_is_refused(tmp_path, set_counts):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    set_counts("cifar100", 10, 10)
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


def test_leaf_samples_of_the_wrong_size_are_named(tmp_path):
    for part in ("train", "test"):
        write_leaf(tmp_path / "femnist" / part, {"ann": ([[0.1, 0.2]], [5])})
    with pytest.raises(InvalidInput, match=r"samples of 'ann' in .*train are damaged"):
        load_dataset("femnist", tmp_path)


def test_an_adult_file_with_missing_columns_is_named(tmp_path):
    (tmp_path / "adult").mkdir()
    for part in ("data", "test"):
        (tmp_path / "adult" / f"adult.{part}").write_text("39, State-gov\n")
    with pytest.raises(InvalidInput, match=r"adult\.data.*15 columns"):
        load_dataset("adult", tmp_path)
