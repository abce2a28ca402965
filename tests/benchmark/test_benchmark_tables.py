"""The script that writes the tables of the documentation from the records of the benchmarks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import benchmark_tables
import pytest
from benchmark_tables import all_sections, gains_row, high_rate_row, steady_row
from made_benchmarks import make_benchmark, make_entry, make_task, make_tuning_run

from fedtaco.benchmark.record import read_record
from fedtaco.benchmark.task_comparison import TaskComparison


def tuned(*tried):
    """Return one tuning run per rate, score and number of rounds to the target."""
    return [make_tuning_run(score, rate, rounds=rounds) for rate, score, rounds in tried]


@pytest.fixture
def task():
    first, second, third, never = ([0.9] * 3, [0.1, 0.9, 0.9], [0.1, 0.1, 0.9], [0.5] * 3)
    entries = [
        make_entry("fedavg", [third, never, never], tuning=tuned((0.1, 0.6, None), (0.3, 0.5, None), (0.6, 0.4, None))),
        make_entry("fedacg", [second, second, third], tuning=tuned((0.1, 0.80, 3), (0.3, 0.795, 2))),
        make_entry("taco-steady", [first, second, never], tuning=tuned((0.1, 0.799, 3), (0.3, 0.0, None))),
    ]
    return make_task(entries)


def test_a_run_without_the_target_counts_as_one_round_more_in_the_difference_to_the_fastest(task):
    cells = steady_row(TaskComparison(task, "fedavg"))
    assert (cells[2], cells[4]) == ("fedacg", "fedacg")
    assert cells[5].startswith("+0.0 [")  # 1, 2 and 4 rounds, against 2, 2 and 3
    assert cells[6:9] == ["3.0", "2.0 (fedacg)", "0 of 3"]
    assert cells[9:] == ["–", "–"]  # taco and the twin were not run


def test_the_high_rate_is_the_highest_that_all_methods_tried(task):
    cells = high_rate_row(make_benchmark(task), task)
    assert cells == ["own", "adult", "0.3", "50.0", "79.5", "–", "–", "0.0"]


def test_significant_gains_have_a_star(task):
    curves = [[accuracy] for accuracy in (0.5, 0.51, 0.5, 0.51)]
    better = [[accuracy] for accuracy in (0.7, 0.71, 0.7, 0.72)]
    entries = [make_entry("fedavg", curves), make_entry("fedacg", better), make_entry("taco-steady", curves)]
    own = replace(task, entries=entries)
    record = replace(make_benchmark(own), name="benchmark-own")
    assert gains_row(record, own) == ["[own](benchmark-own.md)", "adult", "50.5", r"+20.2\*", "+0.0", "3+", "3+", "3+"]


def test_the_documentation_shows_the_records():
    scripts = Path(benchmark_tables.__file__).parent
    records = [read_record(scripts / f"{name}.json") for name in benchmark_tables.PRESETS]
    for page, sections in all_sections(records).items():
        text = (scripts.parent / "docs" / page).read_text(encoding="utf-8")
        for name, content in sections.items():
            assert f"<!-- {name} -->\n{content}\n<!-- /{name} -->" in text, "run python scripts/benchmark_tables.py"
