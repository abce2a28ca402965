"""Fetching datasets, offline: from folders in the hub's parquet layout and from local archives."""

from __future__ import annotations

import io

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import as_samples, fetch_dataset, load_dataset
from fedtaco.data.sources import SOURCES

pytestmark = pytest.mark.usefixtures("temporary_hub_cache")


def check_progress(split, done, total):
    assert split in ("train", "test")
    assert 0 < done <= total


def as_image(pixels):
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def write_hub(folder, name, parts):
    """Write parquet files as the hub stores them: images as PNG bytes, labels as class labels."""
    source = SOURCES[name]
    columns = source.columns
    (folder / "data").mkdir(parents=True)
    for part, (x, y, *users) in parts.items():
        text = isinstance(x[0], str)
        values = {columns.x: list(x) if text else [as_image(image) for image in x], columns.y: list(y)}
        features = {
            columns.x: datasets.Value("string") if text else datasets.Image(),
            columns.y: datasets.Value("string") if text else datasets.ClassLabel(num_classes=source.info.classes),
        }
        if users:
            values[columns.user], features[columns.user] = list(users[0]), datasets.Value("string")
        stored = datasets.Dataset.from_dict(values, features=datasets.Features(features))
        stored.to_parquet(folder / "data" / f"{part}-00000-of-00001.parquet")


@pytest.mark.parametrize("name", ["mnist", "fmnist", "svhn", "cifar10", "cifar100"])
def test_fetched_images_are_unchanged(tmp_path, set_counts, name):
    info = set_counts(name, 120, 40)
    rng = np.random.default_rng(0)
    parts = {
        part: (rng.integers(0, 256, (count, *info.shape), dtype=np.uint8), np.arange(count) % info.classes)
        for part, count in (("train", 120), ("test", 40))
    }
    write_hub(tmp_path / "hub", name, parts)
    fetch_dataset(name, tmp_path / "data", str(tmp_path / "hub"), check_progress)
    data = load_dataset(name, tmp_path / "data")
    for part, samples in (("train", data.train), ("test", data.test)):
        assert np.array_equal(samples.x.numpy(), parts[part][0])
        assert samples.y.tolist() == parts[part][1].tolist()


def test_real_images_are_unchanged(tmp_path, set_counts, real_data):
    whole = load_dataset("fmnist", real_data("fmnist"))
    set_counts("fmnist", 300, 100)
    parts = {
        "train": (whole.train.x[:300].numpy(), whole.train.y[:300].tolist()),
        "test": (whole.test.x[:100].numpy(), whole.test.y[:100].tolist()),
    }
    write_hub(tmp_path / "hub", "fmnist", parts)
    fetch_dataset("fmnist", tmp_path / "data", str(tmp_path / "hub"), check_progress)
    data = load_dataset("fmnist", tmp_path / "data")
    assert torch.equal(data.train.x, whole.train.x[:300])


def test_writers_are_split_into_training_and_test(tmp_path):
    rng = np.random.default_rng(0)
    users = [f"w{i % 3}" for i in range(90)]
    parts = {"train": (rng.integers(0, 256, (90, 1, 28, 28), dtype=np.uint8), np.arange(90) % 62, users)}
    write_hub(tmp_path / "hub", "femnist", parts)
    fetch_dataset("femnist", tmp_path / "data", str(tmp_path / "hub"), check_progress)
    data = load_dataset("femnist", tmp_path / "data")
    assert (len(data.train), len(data.test)) == (81, 9)
    assert np.bincount(data.users).tolist() == [27, 27, 27]


def test_digits_of_femnist_are_selected(tmp_path):
    users = [f"w{i % 3}" for i in range(186)]
    images = np.random.default_rng(0).integers(0, 256, (186, 1, 28, 28), dtype=np.uint8)
    parts = {"train": (images, np.arange(186) % 62, users)}
    write_hub(tmp_path / "hub", "femnist", parts)
    fetch_dataset("femnist:digits", tmp_path / "data", str(tmp_path / "hub"), check_progress)
    data = load_dataset("femnist:digits", tmp_path / "data")
    assert len(data.train) + len(data.test) == 30
    assert data.train.y.max() < 10


def test_text_has_a_gap_between_training_and_test(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(1080))
    windows = [text[i : i + 80] for i in range(1000)]
    parts = {"train": (windows, [text[i + 80] for i in range(1000)], ["HAMLET"] * 1000)}
    write_hub(tmp_path / "hub", "shakespeare", parts)
    fetch_dataset("shakespeare", tmp_path / "data", str(tmp_path / "hub"), check_progress)
    data = load_dataset("shakespeare", tmp_path / "data")
    assert (len(data.train), len(data.test)) == (820, 100)


def test_wrong_counts_are_refused_and_nothing_is_saved(tmp_path):
    parts = {part: (np.zeros((10, 1, 28, 28), np.uint8), np.arange(10)) for part in ("train", "test")}
    write_hub(tmp_path / "hub", "mnist", parts)
    with pytest.raises(InvalidInput, match=r"holds 10 training .* of MNIST; 60000 were published\. Nothing was saved"):
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "hub"), check_progress)
    assert not (tmp_path / "data").exists()


def test_another_dataset_is_refused(tmp_path):
    parts = {part: (np.zeros((10, 3, 32, 32), np.uint8), np.arange(10)) for part in ("train", "test")}
    write_hub(tmp_path / "hub", "cifar10", parts)
    with pytest.raises(InvalidInput, match="is not MNIST: expected a split 'train' with columns image, label"):
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "hub"), check_progress)


def test_errors_name_an_address_that_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidInput, match="nowhere is not a folder; give one with parquet files"):
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "nowhere"), check_progress)
    with pytest.raises(InvalidInput, match="xxx cannot be read: File name too long"):
        fetch_dataset("mnist", tmp_path / "data", "x" * 300, check_progress)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="MNIST could not be fetched from"):
        fetch_dataset("mnist", tmp_path / "data", str(tmp_path / "empty"), check_progress)
    with pytest.raises(InvalidInput, match="Adult could not be fetched from"):
        fetch_dataset("adult", tmp_path / "data", (tmp_path / "nothing.zip").as_uri(), check_progress)
    assert not (tmp_path / "data").exists()


def test_digits_need_no_fetching(tmp_path):
    with pytest.raises(InvalidInput, match="nothing to fetch"):
        fetch_dataset("digits", tmp_path, None, check_progress)


def test_a_hub_dataset_of_the_user_can_be_split_and_trained_on():
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)) for _ in range(60)]
    own = datasets.Dataset.from_dict({"picture": images, "kind": [i % 3 for i in range(60)]})
    clients = fedtaco.split(own, "shards:2", clients=4)
    x, _ = clients[0].batch(torch.tensor([0, 1]))
    assert x.shape == (2, 1, 28, 28)
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3))
    assert len(fedtaco.train(model, clients, rounds=1, local_steps=1).history) == 1
    with pytest.raises(InvalidInput, match=r"entries picture, kind, more, .* name the target in a pair"):
        as_samples(own.add_column("more", range(60)))


def test_bytes_are_not_mistaken_for_an_image():
    buffer = io.BytesIO()
    Image.new("L", (4, 4)).save(buffer, "PNG")
    with pytest.raises(InvalidInput, match="Cannot read samples from bytes"):
        as_samples(buffer.getvalue())
