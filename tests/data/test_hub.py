"""The hub's path, offline: folders in the hub's own parquet schema, made from real or written files."""

from __future__ import annotations

import dataclasses
import io
import zipfile

import datasets
import numpy as np
import pytest
import torch
from PIL import Image

import fedtaco
from fedtaco import InvalidInput
from fedtaco.data import DATASETS, load_dataset
from fedtaco.data.hub import COLUMNS, fetch
from fedtaco.data.samples import as_samples


def quiet(part, done, total):
    assert 0 < done <= total


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("hf"))
    datasets.disable_progress_bars()


@pytest.fixture
def few(monkeypatch):
    def allow(name, train, test):
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], train=train, test=test))
        return DATASETS[name]

    return allow


def as_image(pixels):
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def write_hub(folder, name, parts):
    """Parquet files as the hub stores them: images as PNG bytes, labels as class labels."""
    columns = COLUMNS[name]
    (folder / "data").mkdir(parents=True)
    for part, (x, y, *users) in parts.items():
        text = isinstance(x[0], str)
        values = {columns.x: list(x) if text else [as_image(image) for image in x], columns.y: list(y)}
        features = {
            columns.x: datasets.Value("string") if text else datasets.Image(),
            columns.y: datasets.Value("string") if text else datasets.ClassLabel(num_classes=DATASETS[name].classes),
        }
        if users:
            values[columns.user], features[columns.user] = list(users[0]), datasets.Value("string")
        stored = datasets.Dataset.from_dict(values, features=datasets.Features(features))
        stored.to_parquet(folder / "data" / f"{part}-00000-of-00001.parquet")


@pytest.mark.parametrize("name", ["mnist", "fmnist", "svhn", "cifar10", "cifar100"])
def test_images_arrive_as_they_were(tmp_path, few, name):
    info = few(name, 120, 40)
    rng = np.random.default_rng(0)
    parts = {
        part: (rng.integers(0, 256, (count, *info.shape), dtype=np.uint8), np.arange(count) % info.classes)
        for part, count in (("train", 120), ("test", 40))
    }
    write_hub(tmp_path / "hub", name, parts)
    fetch(info, tmp_path / "data", str(tmp_path / "hub"), quiet)
    data = load_dataset(name, tmp_path / "data")
    for part, samples in (("train", data.train), ("test", data.test)):
        assert np.array_equal(samples.x.numpy(), parts[part][0])
        assert samples.y.tolist() == parts[part][1].tolist()


def test_real_files_through_the_hubs_schema(tmp_path, few, real_data):
    whole = load_dataset("fmnist", real_data)
    info = few("fmnist", 300, 100)
    parts = {
        "train": (whole.train.x[:300].numpy(), whole.train.y[:300].tolist()),
        "test": (whole.test.x[:100].numpy(), whole.test.y[:100].tolist()),
    }
    write_hub(tmp_path / "hub", "fmnist", parts)
    fetch(info, tmp_path / "data", str(tmp_path / "hub"), quiet)
    data = load_dataset("fmnist", tmp_path / "data")
    assert torch.equal(data.train.x, whole.train.x[:300])


def test_writers_are_split_into_training_and_test(tmp_path):
    rng = np.random.default_rng(0)
    users = [f"w{i % 3}" for i in range(90)]
    parts = {"train": (rng.integers(0, 256, (90, 1, 28, 28), dtype=np.uint8), np.arange(90) % 62, users)}
    write_hub(tmp_path / "hub", "femnist", parts)
    fetch(DATASETS["femnist"], tmp_path / "data", str(tmp_path / "hub"), quiet)
    data = load_dataset("femnist", tmp_path / "data")
    assert (len(data.train), len(data.test)) == (81, 9)
    assert np.bincount(data.users).tolist() == [27, 27, 27]


def test_text_keeps_a_gap_between_training_and_test(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(1080))
    windows = [text[i : i + 80] for i in range(1000)]
    parts = {"train": (windows, [text[i + 80] for i in range(1000)], ["HAMLET"] * 1000)}
    write_hub(tmp_path / "hub", "shakespeare", parts)
    fetch(DATASETS["shakespeare"], tmp_path / "data", str(tmp_path / "hub"), quiet)
    data = load_dataset("shakespeare", tmp_path / "data")
    assert (len(data.train), len(data.test)) == (820, 100)


def test_wrong_counts_are_refused_and_nothing_kept(tmp_path):
    parts = {part: (np.zeros((10, 1, 28, 28), np.uint8), np.arange(10)) for part in ("train", "test")}
    write_hub(tmp_path / "hub", "mnist", parts)
    with pytest.raises(InvalidInput, match="gave 10 training samples of MNIST instead of 60000; nothing was kept"):
        fetch(DATASETS["mnist"], tmp_path / "data", str(tmp_path / "hub"), quiet)
    assert not (tmp_path / "data").exists()


def test_another_dataset_is_refused(tmp_path):
    parts = {part: (np.zeros((10, 3, 32, 32), np.uint8), np.arange(10)) for part in ("train", "test")}
    write_hub(tmp_path / "hub", "cifar10", parts)
    with pytest.raises(InvalidInput, match="is not MNIST: expected a part 'train' with the columns image, label"):
        fetch(DATASETS["mnist"], tmp_path / "data", str(tmp_path / "hub"), quiet)


def test_a_source_that_cannot_be_reached_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(InvalidInput, match="nowhere is no folder; name one with parquet files"):
        fetch(DATASETS["mnist"], tmp_path / "data", str(tmp_path / "nowhere"), quiet)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="MNIST could not be fetched from"):
        fetch(DATASETS["mnist"], tmp_path / "data", str(tmp_path / "empty"), quiet)
    with pytest.raises(InvalidInput, match="Adult could not be fetched from"):
        fetch(DATASETS["adult"], tmp_path / "data", (tmp_path / "nothing.zip").as_uri(), quiet)
    assert not (tmp_path / "data").exists()


def test_adult_comes_as_uci_packs_it(tmp_path):
    line = "39, State-gov, 7, Bachelors, 13, Divorced, Sales, Husband, White, Male, 0, 0, 40, Cuba, <=50K"
    archive = tmp_path / "adult.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("adult.data", f"{line}\n")
        file.writestr("adult.test", f"|1x3 Cross validator\n{line}.\n")
    place = fetch(DATASETS["adult"], tmp_path / "data", archive.as_uri(), quiet)
    assert sorted(path.name for path in place.iterdir()) == ["adult.data", "adult.test"]
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:100])
    with pytest.raises(InvalidInput, match="Adult could not be fetched"):
        fetch(DATASETS["adult"], tmp_path / "other", cut.as_uri(), quiet)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(deflated_wrongly(archive))
    with pytest.raises(InvalidInput, match="Adult could not be fetched"):
        fetch(DATASETS["adult"], tmp_path / "other", broken.as_uri(), quiet)
    assert not (tmp_path / "other").exists()


def deflated_wrongly(archive):
    """The same archive packed, with the packed bytes of its first file spoilt."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    content = bytearray(buffer.getvalue())
    start = 30 + len("adult.data")
    content[start : start + 20] = b"\xff" * 20
    return bytes(content)


def test_digits_need_no_fetching(tmp_path):
    with pytest.raises(InvalidInput, match="nothing to fetch"):
        fetch(DATASETS["digits"], tmp_path, None, quiet)


def test_a_users_hub_dataset_can_be_split_and_trained_on():
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)) for _ in range(60)]
    own = datasets.Dataset.from_dict({"picture": images, "kind": [i % 3 for i in range(60)]})
    clients = fedtaco.split(own, "shards:2", clients=4)
    x, _ = clients[0].batch(torch.tensor([0, 1]))
    assert x.shape == (2, 1, 28, 28)
    assert 0 <= float(x.min()) <= float(x.max()) <= 1
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 3))
    assert len(fedtaco.train(model, clients, rounds=1, local_steps=1).history) == 1
    with pytest.raises(InvalidInput, match="select_columns"):
        as_samples(own.add_column("more", range(60)))


def test_bytes_are_not_mistaken_for_a_picture():
    buffer = io.BytesIO()
    Image.new("L", (4, 4)).save(buffer, "PNG")
    with pytest.raises(InvalidInput, match="Cannot read samples from bytes"):
        as_samples(buffer.getvalue())
