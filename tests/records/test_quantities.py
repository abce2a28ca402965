"""Recorded quantities: declared once, and followed by records, run folders and reports."""

from __future__ import annotations

import json
import sys

import pytest

import fedtaco
from fedtaco.records import QUANTITIES, ClientRecord, Quantity, RunFolder
from fedtaco.report.page_data import build_page_data

NAMES = [quantity.name for quantity in QUANTITIES]
SETTINGS = {"dataset": "digits", "clients": 4, "rounds": 2, "local_steps": 2, "engine": "serial"}


def test_client_record_survives_a_line_of_json():
    quantities = {name: number / 10 for number, name in enumerate(NAMES)}
    record = ClientRecord(3, 7, quantities, 0.5, strikes=2, expelled=True, scores={"new": 0.25})
    row = record.to_row()
    own = {"round": 3, "client": 7, "seconds": 0.5, "strikes": 2, "expelled": True, "scores": {"new": 0.25}}
    assert row == {**own, **quantities}
    assert ClientRecord.from_row(json.loads(json.dumps(row))) == record


def test_recorded_keys_are_the_declared_names(tmp_path):
    result = fedtaco.run("fedavg", out=tmp_path, **SETTINGS)
    assert {tuple(record.quantities) for record in result.history.clients} == {tuple(NAMES)}
    for row in RunFolder(tmp_path).client_rows():
        assert set(row) - {"schema", "round", "client", "seconds", "strikes", "expelled", "scores"} == set(NAMES)


@pytest.fixture
def with_squared_norm(monkeypatch):
    """Declare one more quantity, in every module that has imported the declarations."""
    squared = Quantity("squared", "n²", "squared norm", lambda outcome: outcome.uploads.geometry.norms**2, unused=-1.0)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("fedtaco") and vars(module).get("QUANTITIES") is QUANTITIES:
            monkeypatch.setattr(module, "QUANTITIES", (*QUANTITIES, squared))


@pytest.mark.usefixtures("with_squared_norm")
def test_new_quantity_is_recorded_and_reported(tmp_path):
    settings = {**SETTINGS, "freeloaders": 1, "behaviour": "zero", "detector": "guard"}
    result = fedtaco.run("fedavg", out=tmp_path, **settings)
    rows = list(RunFolder(tmp_path).client_rows())
    dropped = {(record.round, client) for record in result.history for client in record.dropped}
    assert len(rows) == 8
    assert len(dropped) == 2
    for row in rows:
        used = (row["round"], row["client"]) not in dropped
        assert row["squared"] == (pytest.approx(row["norm"] ** 2) if used else -1.0)
    assert RunFolder(tmp_path).history() == result.history
    page = build_page_data([RunFolder(tmp_path)])
    assert page.script["quantities"][-1]["title"] == "squared norm"
    (run,) = page.script["runs"]
    assert "squared" in json.dumps(run)
