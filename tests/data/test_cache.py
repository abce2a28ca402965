"""The cache that makes the second load of a dataset fast."""

from __future__ import annotations

import pytest
import torch
from published import write_mnist

from fedtaco.data import load_dataset
from fedtaco.data.sources.idx import IdxSource


def test_the_second_load_reads_the_cache(tmp_path, set_counts, monkeypatch):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    first = load_dataset("mnist", tmp_path)
    monkeypatch.setattr(IdxSource, "read", lambda *_: pytest.fail("the files were read again"))
    again = load_dataset("mnist", tmp_path)
    assert torch.equal(first.train.x, again.train.x)
    assert first.train.prepare == again.train.prepare
    assert not list(tmp_path.rglob("*.part"))


def test_changed_files_are_read_again(tmp_path, set_counts):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    first = load_dataset("mnist", tmp_path)
    write_mnist(tmp_path / "mnist", 50, 20, seed=1)
    assert not torch.equal(first.train.x, load_dataset("mnist", tmp_path).train.x)


def test_a_read_only_folder_is_used_without_a_cache(tmp_path, set_counts, monkeypatch):
    def refuse(*_):
        raise PermissionError

    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    monkeypatch.setattr("fedtaco.data.cache.write_splits", refuse)
    data = load_dataset("mnist", tmp_path)
    assert data.train.batch(torch.arange(50))[0].shape == (50, 1, 28, 28)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_damaged_cache_is_written_again(tmp_path, set_counts, part):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    whole = load_dataset("mnist", tmp_path).train.x.clone()
    cached = tmp_path / "cache" / "mnist" / f"{part}.safetensors"
    cached.write_bytes(cached.read_bytes()[:200])
    assert torch.equal(load_dataset("mnist", tmp_path).train.x, whole)
