"""Reading the publishers' files: small files in the published formats; test_damaged_*.py has damaged ones."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
from published import write_cifar100, write_leaf, write_mnist, write_svhn
from scipy.io import loadmat

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


def test_unit_pixels_are_bytes_divided_by_255_from_the_same_cache(tmp_path, set_counts):
    write_mnist(tmp_path / "mnist", 50, 20)
    for name in ("mnist", "mnist:unit"):
        set_counts(name, 50, 20)
        data = load_dataset(name, tmp_path)
    x, _ = data.train.batch(torch.arange(50))
    torch.testing.assert_close(x, data.train.x.float() / 255)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist"]


def test_cifar100_has_fine_labels_and_is_standardized_per_channel(tmp_path, set_counts):
    set_counts("cifar100", 200, 100)
    write_cifar100(tmp_path / "cifar-100-python", 200, 100)
    data = load_dataset("cifar100", tmp_path)
    assert data.train.x.shape == (200, 3, 32, 32)
    assert data.train.y.unique().numel() == 100
    x, _ = data.train.batch(torch.arange(200))
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)


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


def test_the_folder_of_debians_package_is_searched():
    assert "/usr/share/datasets/fashion-mnist" in SOURCES["fmnist"].info.folders


def test_the_error_for_a_missing_dataset_says_how_to_get_it(tmp_path):
    with pytest.raises(InvalidInput) as error:
        load_dataset("cifar10", tmp_path)
    for words in (str(tmp_path), "fedtaco data fetch cifar10", "data_batch_1", "cifar-10-batches-py", "FEDTACO_DATA"):
        assert words in str(error.value)


def test_swapped_files_are_refused(tmp_path, set_counts):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    labels = tmp_path / "mnist" / "train-labels-idx1-ubyte.gz"
    labels.with_name("train-images-idx3-ubyte.gz").write_bytes(labels.read_bytes())
    with pytest.raises(InvalidInput, match=r"train-images.*expected an IDX file of bytes with shape n × 28 × 28"):
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
