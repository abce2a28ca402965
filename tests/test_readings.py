"""The script of the paper's readings, on the small digits in place of Fashion-MNIST and adult."""

import json
import re
from dataclasses import replace
from pathlib import Path

import readings
from pytest import MonkeyPatch, mark

SMALL = {"dataset": "digits", "partition": "groups", "clients": 4, "local_steps": 2, "model": "mlp:4"}


@mark.parametrize("title", readings.TASKS)
def test_readings_run_with_the_engine_of_their_task_and_keep_earlier_figures(
    title: str, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    task = replace(readings.TASKS[title], settings={**readings.TASKS[title].settings, **SMALL}, rounds=2, seeds=2)
    results = tmp_path / "readings.json"
    results.write_text(json.dumps({title: {"fedavg": ["kept"], "taco": ["replaced"]}}))
    monkeypatch.setattr(readings, "TASKS", {title: task})
    monkeypatch.setattr(readings, "RESULTS", results)

    readings.run_all_seeds("taco", task, tmp_path)
    readings.write_results(tmp_path)

    found = json.loads(results.read_text())[title]
    assert found["fedavg"] == ["kept"]
    assert [len(run["accuracy"]) for run in found["taco"]] == [2, 2]
    lowest, highest = found["taco"][0]["weights"]
    assert 0 <= lowest < 1 / 4 < highest


def test_a_table_has_no_row_for_a_reading_that_was_not_run() -> None:
    runs = {"fedavg": [{"accuracy": [0.5, *99 * [0.75]], "expelled": 0, "weights": [0.05, 0.05]}]}
    table = readings.table(runs, readings.TASKS["fmnist"])
    assert "| fedavg | 2 | 75.0 |" in table
    assert "stem" not in table


def test_a_reading_swings_by_its_range_beside_that_of_fedavg() -> None:
    flat, rising = [0.75] * 9 + [0.76], [0.72] * 5 + [0.76] * 5
    runs = {
        name: [{"accuracy": 40 * [0.7] + curve, "expelled": 0, "weights": [0.05, 0.05]}]
        for name, curve in {"fedavg": flat, "fedacg": rising, "taco": flat}.items()
    }
    rows = readings.table(runs, readings.TASKS["adult"]).splitlines()[2:]
    assert [re.findall(r"\d of 1", row) for row in rows] == [["0 of 1"], ["1 of 1"], ["0 of 1"]]


def test_a_run_that_ended_early_is_named_and_does_not_swing() -> None:
    flat, wild = 50 * [0.75], 10 * [0.3, 0.7]
    runs = {
        name: [{"accuracy": curve, "expelled": expelled, "weights": [0.05, 0.05]} for curve in curves]
        for name, curves, expelled in (("fedavg", [flat, flat], 0), ("taco-expulsion", [wild, flat], 8))
    }
    row = readings.table(runs, readings.TASKS["adult"]).splitlines()[-1]
    start = "| taco, the paper's detector on (8 clients expelled; 1 of 2 runs ended early) | 50+ | 72.5 |"
    assert row.startswith(start)
    assert "| 0 of 2 |" in row
