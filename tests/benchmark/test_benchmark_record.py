"""Figures of one run, and the file that a benchmark is drawn from."""

from __future__ import annotations

import pytest
from made_benchmarks import make_benchmark, make_entry, make_run, make_task

from fedtaco import InvalidInput
from fedtaco.benchmark.record import read_record, write_record


def test_figures_are_of_the_last_ten_rounds():
    run = make_run([0.1, 0.2, *[0.8, 0.9] * 5])
    assert run.late_accuracy == pytest.approx(0.85)
    assert run.late_range == pytest.approx(0.1)
    assert make_run([0.5, 0.6]).late_accuracy == pytest.approx(0.55)


def test_a_run_that_diverged_counts_as_zero_and_does_not_reach_the_target():
    run = make_run([0.8] * 12, stopped="It diverged.")
    assert (run.late_accuracy, run.late_range, run.rounds_to(0.7)) == (0.0, None, None)
    assert not run.swings(None)


def test_rounds_to_target_count_from_one():
    run = make_run([0.1, 0.7, 0.6, 0.9])
    assert (run.rounds_to(0.1), run.rounds_to(0.7), run.rounds_to(0.8), run.rounds_to(0.95)) == (1, 2, 4, None)


@pytest.mark.parametrize(("low", "swings"), [(0.77, False), (0.7699, True)])
def test_a_run_swings_if_its_range_is_over_three_times_that_of_fedavg(low, swings):
    fedavg = make_run([0.79] * 9 + [0.80])
    assert make_run([0.80] * 9 + [low]).swings(fedavg) is swings


def test_a_run_of_fewer_than_ten_rounds_does_not_swing():
    assert not make_run([0.8, 0.1]).swings(make_run([0.8, 0.8]))


@pytest.mark.parametrize(
    ("last", "swings"),
    [
        ([0.80, 0.84] * 5, True),
        ([0.80, 0.83] * 5, False),  # no more than three points
        ([0.80, 0.84, 0.80, 0.84, 0.80, 0.80, 0.80, 0.80, 0.80, 0.80], True),  # four alternating changes
        ([0.80, 0.84, 0.80, 0.84, 0.84, 0.84, 0.84, 0.84, 0.84, 0.84], False),  # three
        ([0.1 * n for n in range(10)], False),  # rising, not swinging
    ],
)
def test_without_fedavg_a_run_swings_if_it_turns_often(last, swings):
    assert make_run(last).swings(None) is swings
    assert make_run(last).swings(make_run([0.8], stopped="It diverged.")) is swings


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = make_benchmark(
        make_task([make_entry("fedavg", [[0.5, 0.7]]), make_entry("taco", [[0.6, 0.8]], stopped=[0])]),
        make_task([make_entry("taco", [], settings={})], name="fmnist", primary=False),
        twins=[("taco-correction", "taco-uniform")],
    )
    write_record(record, tmp_path / "benchmark.json")
    assert read_record(tmp_path / "benchmark.json") == record
    runs = [line for line in (tmp_path / "benchmark.json").read_text().splitlines() if '"seed"' in line]
    assert len(runs) == 5  # one line each


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"format": 2', '"format": 1', "has the format 1, not 2"),
        ('"accuracy": [0.5, 0.7]', '"accuracy": [0.5, 7]', "is damaged: tasks: entries: evaluation: accuracy: 7"),
        ('"accuracy": [0.5, 0.7]', '"accuracy": [NaN]', "contains NaN"),
        ('"title"', '"titel"', "title is missing"),
        ("{", "", "is damaged"),
    ],
)
def test_damaged_files_are_refused(tmp_path, old, new, words):
    path = tmp_path / "benchmark.json"
    write_record(make_benchmark(make_task([make_entry("fedavg", [[0.5, 0.7]])])), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidInput, match=words):
        read_record(path)
