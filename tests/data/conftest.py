"""Fixtures for the tests of datasets."""

from __future__ import annotations

import dataclasses

import pytest

from fedtaco.data.sources import SOURCES


@pytest.fixture
def set_counts(monkeypatch):
    """Change the published numbers of samples, so that tests can write small files."""

    def change(name, train, test):
        source = SOURCES[name]
        info = dataclasses.replace(source.info, train=train, test=test)
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, info=info))
        return info

    return change


@pytest.fixture
def temporary_hub_cache(tmp_path_factory, monkeypatch):
    """Let the datasets library use an empty cache folder and show no progress bars."""
    import datasets

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("hf"))
    datasets.disable_progress_bars()
