"""fedtaco.run and fedtaco.load: runs are recorded, read back, and independent of the engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from run_helpers import assert_same_model, without_times

import fedtaco
from fedtaco import Taco
from fedtaco.data import load_dataset
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "rounds": 3, "local_steps": 2}


def test_finished_run_is_read_back(tmp_path):
    result = fedtaco.run("taco", out=tmp_path / "run", **QUICK)
    loaded = fedtaco.load(tmp_path / "run")
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(loaded.model(x), result.model(x))
    assert torch.equal(loaded.output_model(x), result.output_model(x))
    assert loaded.history == result.history


def test_stopped_run_is_read_back(tmp_path):
    with pytest.raises(fedtaco.RunStopped):
        fedtaco.run("taco", out=tmp_path / "run", **QUICK | {"local_lr": 1e20, "rounds": 9})
    assert len(fedtaco.load(tmp_path / "run").history) < 9


def test_run_is_read_back_without_the_code_of_its_method(tmp_path, monkeypatch):
    (tmp_path / "gone.py").write_text((Path(__file__).parents[2] / "examples" / "own_method.py").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    fedtaco.run("gone:Clipped", out=tmp_path / "run", **QUICK)
    (tmp_path / "gone.py").unlink()
    monkeypatch.delitem(sys.modules, "gone")
    assert len(fedtaco.load(tmp_path / "run").history) == 3


def test_pool_and_serial_engine_give_the_same_run(tmp_path):
    serial = fedtaco.run("scaffold", engine="serial", **QUICK)
    pool = fedtaco.run("scaffold", out=tmp_path / "run", engine="pool", workers=2, **QUICK)
    assert_same_model(serial.model, pool.model)
    assert without_times(serial.history.client_table()) == without_times(pool.history.client_table())
    assert RunFolder(tmp_path / "run").config()["engine"] == "pool"


def test_parameters_of_a_method_object_are_recorded(tmp_path):
    fedtaco.run(Taco(gamma=0.03), out=tmp_path / "run", **QUICK)
    assert RunFolder(tmp_path / "run").config()["parameters"]["taco.gamma"] == 0.03


def test_notes_of_the_partition_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.data.partitions.skew.MAX_DRAWS", 1)
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK | {"clients": 60, "partition": "dirichlet:0.05"})
    assert "were moved from the largest" in RunFolder(tmp_path / "run").summary()["partition_notes"][0]


def test_share_of_the_most_frequent_test_class_is_recorded(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK)
    counts = load_dataset("digits").test.labels().bincount()
    summary = RunFolder(tmp_path / "run").summary()
    assert summary["majority_share"] == int(counts.max()) / int(counts.sum())
    assert not summary["predicts_one_class"]


def test_model_that_predicts_one_class_is_recorded_as_such(tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", **QUICK | {"local_lr": 10.0, "rounds": 1, "engine": "serial"})
    assert sorted(RunFolder(tmp_path / "run").history()[0].class_accuracy) == [0.0] * 9 + [1.0]
    assert RunFolder(tmp_path / "run").summary()["predicts_one_class"]
