"""Stored diagnostics: complete, in order, of existing clients; and what is computed from them."""

from __future__ import annotations

import dataclasses

import pytest
from forging import forge

import fedtaco
from fedtaco import InvalidInput
from fedtaco.records import RunFolder
from fedtaco.records.diagnostics import ClientDiagnostics, Diagnostics, RoundDiagnostics, check_diagnostics

QUICK = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 3, "model": "mlp:8", "engine": "serial"}


def client(number, index=None, **changes):
    usual = {"mu": 0.5, "gradient_cosine": 0.25, "drift": 1.0, "over_correction": index}
    return ClientDiagnostics(number, **{**usual, **changes})


def record(number, *clients, **changes):
    usual = {"gradient_norm": 1.0, "smoothness": 2.0, "rate_sum": 0.5}
    return RoundDiagnostics(number, **{**usual, **changes}, clients=list(clients))


def rows(*records):
    return [dataclasses.asdict(one) for one in records]


def test_records_are_read_as_they_were_written():
    written = [record(1, client(0, 0.3), client(2)), record(2, alpha=0.4)]
    assert list(check_diagnostics(rows(*written), rounds=2, clients=3)) == written


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (rows(record(2)), "line 1 is the record of round 2"),
        (rows(record(1)), "1 of 2 rounds"),
        (rows(record(1), record(2), record(3)), "line 3"),
        (rows(record(1, client(3)), record(2)), "out of place"),
        (rows(record(1, client(-1)), record(2)), "out of place"),
        (rows(record(1, client(1), client(1)), record(2)), "out of place"),
        ([{**rows(record(1))[0], "smoothness": "2"}, *rows(record(2))], "smoothness"),
    ],
    ids=["order", "missing", "too many", "unknown client", "negative client", "twice", "type"],
)
def test_records_that_a_run_would_not_write_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        list(check_diagnostics(lines, rounds=2, clients=3))


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


def test_forged_diagnostics_are_refused(tmp_path):
    fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    forge(tmp_path / "run", "diagnostics.jsonl", lambda rows: rows[1]["clients"][0].update(client=6))
    with pytest.raises(InvalidInput, match="out of place"):
        RunFolder(tmp_path / "run").diagnostics()


def test_a_missing_entry_is_refused(tmp_path):
    fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    forge(tmp_path / "run", "summary.json", lambda content: content["files"].pop("diagnostics.jsonl"))
    with pytest.raises(InvalidInput, match=r"it lacks diagnostics\.jsonl"):
        RunFolder(tmp_path / "run").diagnostics()


def test_replacing_a_run_removes_its_diagnostics(tmp_path):
    fedtaco.run("taco", out=tmp_path / "run", diagnose=True, **QUICK)
    fedtaco.run("taco", out=tmp_path / "run", overwrite=True, **QUICK)
    assert not (tmp_path / "run" / "diagnostics.jsonl").exists()
