"""Versions of Python, torch and numpy are recorded, and a run that continues with others warns."""

from __future__ import annotations

import platform
import re

import numpy as np
import pytest
import torch
from run_helpers import Interrupted, assert_same_result, interrupt_after

import fedtaco
from fedtaco.records import RunFolder

SETTINGS = {"dataset": "digits", "clients": 6, "rounds": 8, "local_steps": 4, "batch_size": 16, "engine": "serial"}


def run_until(number, out):
    """Start or continue a run, and interrupt it after a round."""
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=out, resume=True, callbacks=[interrupt_after(number)], **SETTINGS)


def recorded_versions(out):
    return RunFolder(out).config()["ran_by"]["versions"]


def test_changed_versions_are_recorded_with_a_warning(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as older:
        older.setattr("torch.__version__", "2.4.0")
        run_until(3, out)
    (first,) = recorded_versions(out)
    current = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    assert first == {**current, "from_round": 1, "torch": "2.4.0"}
    warning = rf"began with torch 2\.4\.0 continues with torch {re.escape(torch.__version__)}: its results may differ"
    with pytest.warns(RuntimeWarning, match=warning):
        run_until(5, out)
    assert recorded_versions(out) == [first, {**current, "from_round": 4}]
    resumed = fedtaco.run("taco", out=out, resume=True, **SETTINGS)
    assert recorded_versions(out) == [first, {**current, "from_round": 4}]
    assert_same_result(fedtaco.run("taco", **SETTINGS), resumed)
    assert_same_result(resumed, fedtaco.load(out))


def test_folder_without_versions_records_those_it_continues_with(tmp_path):
    out = tmp_path / "run"
    run_until(3, out)
    folder = RunFolder(out)
    ran_by = folder.config()["ran_by"]
    del ran_by["versions"]
    folder.record_ran_by(ran_by)
    fedtaco.run("taco", out=out, resume=True, **SETTINGS)
    (only,) = recorded_versions(out)
    assert only["from_round"] == 4
