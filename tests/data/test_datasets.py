"""Datasets by name: the registry, held-out samples and label counts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from fedtaco import InvalidInput
from fedtaco.data import dataset_info, fetch_dataset, hold_out, label_counts, load_dataset, partition_dataset
from fedtaco.data.sources import SOURCES
from fedtaco.data.sources.base import DatasetInfo, RawDataset, RawSplit, Source


class Lines(Source):
    """A dataset with one text file per split: an input and a label in each line."""

    def read(self, folder):
        tables = (np.loadtxt(folder / name, dtype=np.uint8, ndmin=2) for name in self.info.files)
        return RawDataset(*(RawSplit(table[:, :1], table[:, 1]) for table in tables))

    def fetch(self, root, address, progress):
        (root / "lines").mkdir(parents=True)
        for name, text in (("train", "1 0\n2 1\n3 1\n"), ("test", "4 0\n")):
            (root / "lines" / name).write_text(text)
            progress(name, 1, 1)
        return root / "lines"


@pytest.fixture
def lines(monkeypatch):
    info = DatasetInfo(
        "lines", "Lines", (1,), 2, "mlp", "iid", folders=("lines",), files=("train", "test"), hub="https://example.org"
    )
    monkeypatch.setitem(SOURCES, "lines", Lines(info))


def test_a_new_dataset_needs_only_its_class_and_its_entry(tmp_path, lines):
    assert SOURCES["lines"].availability(tmp_path) == "–"
    with pytest.raises(InvalidInput, match="Lines was not found"):
        load_dataset("lines", tmp_path)
    assert fetch_dataset("lines", tmp_path) == tmp_path / "lines"
    assert SOURCES["lines"].availability(tmp_path) == "files"
    data = load_dataset("lines", tmp_path)
    x, y = data.train.batch(torch.tensor([0, 2]))
    assert (x.tolist(), y.tolist()) == ([[1.0], [3.0]], [0, 1])
    assert sum(map(len, partition_dataset(data, "iid", 2, seed=0).indices)) == 3
    (tmp_path / "lines" / "test").unlink()
    assert SOURCES["lines"].availability(tmp_path) == "cached"
    assert load_dataset("lines", tmp_path).test.x.tolist() == [[4]]


def test_unknown_datasets_are_refused_with_a_suggestion():
    for function in (load_dataset, dataset_info, fetch_dataset):
        with pytest.raises(InvalidInput, match="There is no dataset 'mnst'; did you mean 'mnist'"):
            function("mnst")


def test_training_settings_are_not_facts_of_a_dataset():
    facts = {field.name for field in dataclasses.fields(DatasetInfo)}
    assert facts.isdisjoint({"rounds", "local_steps", "local_lr", "target"})


def test_digits_are_embedded(tmp_path):
    assert SOURCES["digits"].availability(tmp_path) == "embedded"
    load_dataset("digits", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_held_out_samples_are_disjoint_from_the_remaining_ones():
    parts = [np.arange(10), np.arange(10, 31), np.arange(31, 32)]
    remaining, held_out = hold_out(parts, 0.25, seed=3)
    assert [len(part) for part in remaining] == [7, 15, 1]
    assert [len(part) for part in held_out] == [3, 6, 0]
    for part, kept, held in zip(parts, remaining, held_out, strict=True):
        assert sorted([*kept, *held]) == part.tolist()


def test_held_out_samples_of_excluded_clients_are_discarded():
    parts = [np.arange(10), np.arange(10, 30)]
    everyone, one = hold_out(parts, 0.2, seed=0), hold_out(parts, 0.2, seed=0, exclude=[1])
    assert all(np.array_equal(a, b) for a, b in zip(everyone[0], one[0], strict=True))
    assert [len(part) for part in one[1]] == [2, 0]
    assert np.array_equal(one[1][0], everyone[1][0])


def test_label_counts_have_one_row_per_client_and_one_column_per_class():
    data = load_dataset("digits")
    parts = partition_dataset(data, "shards:2", 10, seed=0).indices
    counts = label_counts(data.train.y.numpy(), parts, classes=12)
    assert counts.shape == (10, 12)
    assert counts.sum(1).tolist() == [len(part) for part in parts]
    assert counts.sum(0).tolist() == np.bincount(data.train.y, minlength=12).tolist()


def test_digits_are_compact_and_standardised():
    data = load_dataset("digits")
    assert data.train.x.dtype == torch.uint8
    x, _ = data.train.batch(torch.arange(len(data.train)))
    assert float(x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
