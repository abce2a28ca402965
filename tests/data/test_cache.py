"""The cache that makes the second load of a dataset fast."""

from __future__ import annotations

import pytest
import torch
from published import write_mnist
from safetensors import SafetensorError

from fedtaco import InvalidInput
from fedtaco.data import load_dataset
from fedtaco.data.cache import write_cache
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


@pytest.mark.parametrize("error", [PermissionError("read-only"), SafetensorError("No space left on device")])
def test_if_the_cache_cannot_be_written_the_files_are_used_without_it(tmp_path, set_counts, monkeypatch, error):
    def refuse(*_, **__):
        raise error

    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    monkeypatch.setattr("fedtaco.data.cache.save_file", refuse)
    data = load_dataset("mnist", tmp_path)
    assert data.train.batch(torch.arange(50))[0].shape == (50, 1, 28, 28)
    with pytest.raises(InvalidInput, match=r"Cannot write to .*cache.mnist"):
        write_cache(tmp_path, "mnist", {"test": {}, "train": {}}, {})


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_damaged_cache_is_written_again(tmp_path, set_counts, part):
    set_counts("mnist", 50, 20)
    write_mnist(tmp_path / "mnist", 50, 20)
    whole = load_dataset("mnist", tmp_path).train.x.clone()
    cached = tmp_path / "cache" / "mnist" / f"{part}.safetensors"
    cached.write_bytes(cached.read_bytes()[:200])
    assert torch.equal(load_dataset("mnist", tmp_path).train.x, whole)
