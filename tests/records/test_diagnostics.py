"""Stored diagnostics, and what is computed from them."""

from __future__ import annotations

import pytest
from forging import forge

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.records.diagnostics import ClientDiagnostics, Diagnostics, RoundDiagnostics

QUICK = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 3, "model": "mlp:8", "engine": "serial"}


def client(number, index=None, **changes):
    usual = {"mu": 0.5, "gradient_cosine": 0.25, "drift": 1.0, "over_correction": index}
    return ClientDiagnostics(number, **{**usual, **changes})


def record(number, *clients, **changes):
    usual = {"gradient_norm": 1.0, "smoothness": 2.0, "rate_sum": 0.5}
    return RoundDiagnostics(number, **{**usual, **changes}, clients=list(clients))


def test_summary_says_who_is_over_corrected_in_most_rounds():
    found = Diagnostics(
        [
            record(1, client(0), client(1, 0.5), client(2, 2.0), client(3, -0.1)),
            record(2, client(0), client(1, 0.9), client(2, 0.1), client(3, 1.5), over_correction=0.4),
            record(3, client(1, 1.2), client(2, 3.0), over_correction=-2.0),
        ]
    )
    assert found.summarize() == {
        "measured": 8,
        "share": 5 / 8,
        "uphill": 1 / 8,
        "measured_clients": 3,
        "clients": [2, 3],
        "measured_rounds": 2,
        "rounds": 1,
    }


def test_summary_of_a_method_without_correction():
    found = Diagnostics([record(1, client(0))]).summarize()
    assert (found["share"], found["uphill"], found["clients"]) == (None, None, [])
    assert found["measured"] == found["measured_clients"] == found["measured_rounds"] == found["rounds"] == 0


def test_tables_have_one_row_per_round_and_per_client():
    found = Diagnostics([record(1, client(0), client(1), alpha=0.5), record(2, client(0))])
    assert [row["round"] for row in found.table()] == [1, 2]
    assert found.table()[0]["error_term"] == pytest.approx((2.0 * 1.0 * 0.5 * (2 + 2) / (0.5 * 2)) ** 2)
    assert found.table()[1]["error_term"] is None
    assert [(row["round"], row["client"]) for row in found.client_table()] == [(1, 0), (1, 1), (2, 0)]


def test_a_gradient_of_zero_leaves_the_ratio_undefined():
    assert client(0, mu=None, gradient_cosine=None).norm_ratio is None
    assert Diagnostics([record(1, client(0, mu=None, gradient_cosine=None))]).assumption_2 == {}


# Run folders


def test_damaged_diagnostics_are_refused(tmp_path):
    fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    path = tmp_path / "run" / "diagnostics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"round": 2', b'"round": 3'))
    with pytest.raises(InvalidInput, match=r"diagnostics\.jsonl is damaged"):
        fedtaco.load(tmp_path / "run")


def test_a_missing_entry_is_refused(tmp_path):
    fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    forge(tmp_path / "run", "summary.json", lambda content: content["files"].pop("diagnostics.jsonl"))
    with pytest.raises(InvalidInput, match=r"it lacks diagnostics\.jsonl"):
        RunFolder(tmp_path / "run").diagnostics()


def test_replacing_a_run_removes_its_diagnostics(tmp_path):
    fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    fedtaco.run("taco", out=tmp_path / "run", overwrite=True, **QUICK)
    assert not (tmp_path / "run" / "diagnostics.jsonl").exists()
