"""A folder that was damaged at random is read correctly or refused, whatever was damaged."""

from __future__ import annotations

import shutil

import pytest
from folder_damage import damage, judge, shared_specimens


@pytest.mark.parametrize("seed", range(60))
def test_damaged_folder_is_read_correctly_or_refused(seed, tmp_path):
    specimens = shared_specimens()
    source = (specimens.unfinished, specimens.finished)[seed % 2]
    folder = shutil.copytree(source, tmp_path / source.name)
    description = damage(folder, seed, specimens.older)
    assert judge(folder, specimens) in ("correct", "refused"), description


@pytest.mark.parametrize("name", ["unfinished", "finished"])
def test_folder_without_damage_is_correct(name, tmp_path):
    specimens = shared_specimens()
    folder = shutil.copytree(getattr(specimens, name), tmp_path / name)
    assert judge(folder, specimens) == "correct"
