"""Runs that are diagnosed: what they record, and that nothing else changes."""

from __future__ import annotations

import json
from time import perf_counter

import pytest
from run_helpers import Interrupted, assert_same_result, interrupt_after

import fedtaco
from fedtaco import InvalidInput, federation
from fedtaco.diagnostics import Diagnoser
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 3, "model": "mlp:8", "engine": "serial"}


def test_diagnostics_are_recorded_and_loaded(tmp_path):
    result = fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    assert [record.round for record in result.diagnostics] == [1, 2, 3]
    assert all(len(record.clients) == 6 for record in result.diagnostics)
    assert fedtaco.load(tmp_path / "run").diagnostics == result.diagnostics
    assert len((tmp_path / "run" / "diagnostics.jsonl").read_text().splitlines()) == 3
    assert result.summary["over_correction"]["measured_clients"] == 6
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stored["over_correction"] == result.summary["over_correction"]


def test_runs_are_not_diagnosed_by_default(tmp_path):
    result = fedtaco.run("taco", out=tmp_path / "run", **QUICK)
    assert result.diagnostics is fedtaco.load(tmp_path / "run").diagnostics is None
    assert result.summary["over_correction"] is None
    assert not (tmp_path / "run" / "diagnostics.jsonl").exists()


@pytest.mark.parametrize("method", ["scaffold", "mime", "taco"])
def test_diagnosing_changes_nothing_else(method):
    plain, diagnosed = (fedtaco.run(method, diagnose=diagnose, **QUICK) for diagnose in (False, True))
    assert_same_result(plain, diagnosed)


def test_a_resumed_run_has_the_same_diagnostics(tmp_path):
    whole = fedtaco.run("taco", diagnose=True, **QUICK)
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=tmp_path / "run", diagnose=True, callbacks=[interrupt_after(2)], **QUICK)
    assert len(RunFolder(tmp_path / "run").diagnostics()) == 2
    resumed = fedtaco.run("taco", out=tmp_path / "run", diagnose=True, resume=True, **QUICK)
    assert resumed.diagnostics == whole.diagnostics
    assert fedtaco.load(tmp_path / "run").diagnostics == whole.diagnostics


def test_a_run_is_resumed_with_the_same_setting_only(tmp_path):
    with pytest.raises(Interrupted):
        fedtaco.run("taco", out=tmp_path / "run", diagnose=True, callbacks=[interrupt_after(1)], **QUICK)
    with pytest.raises(InvalidInput, match="diagnose is True there and False here"):
        fedtaco.run("taco", out=tmp_path / "run", resume=True, **QUICK)


def test_diagnostics_do_not_depend_on_the_engine():
    serial, pool, batched = (
        fedtaco.run("taco", diagnose=True, **{**QUICK, "engine": engine}).diagnostics
        for engine in ("serial", "pool", "batched")
    )
    assert pool == serial
    for expected, found in zip(serial.client_table(), batched.client_table(), strict=True):
        numbers = {name: value for name, value in expected.items() if value is not None}
        assert {name: found[name] for name in numbers} == pytest.approx(numbers, rel=1e-2, abs=1e-4)


def test_partial_participation_is_diagnosed():
    found = fedtaco.run("taco", diagnose=True, participation=0.5, **QUICK).diagnostics
    assert [len(record.clients) for record in found] == [3, 3, 3]


def test_rounds_with_absent_clients_are_diagnosed():
    found = fedtaco.run("taco", diagnose=True, client_dropout=0.7, **{**QUICK, "rounds": 6}).diagnostics
    cohorts = [[one.client for one in record.clients] for record in found]
    assert [record.round for record in found] == list(range(1, 7))
    assert 0 < sum(map(len, cohorts)) < 36
    assert [] in cohorts


def test_personal_layers_are_refused_before_anything_is_run(tmp_path):
    with pytest.raises(InvalidInput, match="one model for all clients"):
        fedtaco.run("fedavg", out=tmp_path / "run", diagnose=True, personal="*bias", **QUICK)
    assert not (tmp_path / "run").exists()


def test_time_of_diagnosing_is_not_part_of_a_round(monkeypatch):
    clock, diagnose = [0.0], Diagnoser.diagnose

    def diagnose_for_long(*arguments):
        clock[0] += 1000
        return diagnose(*arguments)

    monkeypatch.setattr(Diagnoser, "diagnose", diagnose_for_long)
    monkeypatch.setattr(federation, "perf_counter", lambda: perf_counter() + clock[0])
    result = fedtaco.run("fedavg", diagnose=True, **QUICK)
    assert clock[0] == 3000
    assert max(record.wall_seconds for record in result.history) < 500
