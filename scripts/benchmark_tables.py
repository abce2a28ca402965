#!/usr/bin/env python3
"""Write the pages and tables of the benchmark from scripts/benchmark-mlp.json and scripts/benchmark-cnn.json.

These files are the benchmark.json that `fedtaco benchmark` writes, whose runs take hours.
"""

from pathlib import Path
from statistics import fmean

from pages import DOCS, markdown_table, write_sections

from fedtaco.benchmark.page import write_page
from fedtaco.benchmark.record import BenchmarkRecord, EntryRecord, read_record
from fedtaco.benchmark.task_comparison import TaskComparison
from fedtaco.methods import PAPER_METHODS
from fedtaco.report.differences import confidence_interval

PRESETS = ("benchmark-mlp", "benchmark-cnn")
SEVEN = [method.name for method in PAPER_METHODS]
STEADY, TWIN = "taco-steady", "taco-steady-uniform"


def main() -> None:
    for preset in PRESETS:
        path = Path(__file__).parent / f"{preset}.json"
        if path.exists():
            record = read_record(path)
            write_page(record, DOCS / f"{preset}.md")
            write_sections(DOCS / "results.md", {f"{preset}-steady": steady_table(record)})


def steady_table(record: BenchmarkRecord) -> str:
    """Return how taco-steady compares with the best of the paper's seven methods on each task."""
    headers = ["task", "taco-steady, %", "best of the seven", "difference", "fastest of the seven"]
    headers += ["difference in rounds", "seeds that swing", "difference to taco", "difference to its twin"]
    return markdown_table(headers, [steady_row(TaskComparison(task, record.reference)) for task in record.tasks])


def steady_row(comparison: TaskComparison) -> list[object]:
    entries = {entry.name: entry for entry in comparison.entries}
    best = next(name for name in comparison.ranking if name in SEVEN)
    rounds = {name: rounds_by_seed(entries[name], comparison.task.target) for name in [*SEVEN, STEADY]}
    fastest = min(SEVEN, key=lambda name: fmean(rounds[name].values()))
    later = confidence_interval([rounds[STEADY][seed] - rounds[fastest][seed] for seed in comparison.seeds])
    return [
        f"{comparison.task.name}{'' if comparison.task.primary else ' (not primary)'}",
        f"{100 * fmean(comparison.accuracies[STEADY].values()):.1f}",
        best,
        comparison.difference(STEADY, best),
        fastest,
        f"{later.mean:+.1f} [{later.low:+.1f}, {later.high:+.1f}]".replace("-", "−"),
        f"{comparison.count_swings(entries[STEADY])} of {len(comparison.seeds)}",
        comparison.difference(STEADY, "taco"),
        comparison.difference(STEADY, TWIN) or "–",
    ]


def rounds_by_seed(entry: EntryRecord, target: float) -> dict[int, int]:
    """Return the round in which each run reaches the target; one more than all rounds if it does not."""
    return {run.seed: run.rounds_to(target) or len(run.accuracy) + 1 for run in entry.evaluation}


if __name__ == "__main__":
    main()
