#!/usr/bin/env python3
"""Write the pages, tables and figures of the benchmark from its records, such as scripts/benchmark-mlp.json.

A record is the benchmark.json that `fedtaco benchmark` writes, whose runs take hours.
"""

from pathlib import Path
from statistics import fmean

from pages import DOCS, markdown_table, write_sections

from fedtaco.benchmark.figures import draw_differences
from fedtaco.benchmark.page import findings, write_page
from fedtaco.benchmark.record import BenchmarkRecord, TaskRecord, read_record
from fedtaco.benchmark.tables import MISSING, rates_table
from fedtaco.benchmark.task_comparison import TaskComparison
from fedtaco.benchmark.tried_settings import earliest_settings, tried_with_all_seeds
from fedtaco.methods import PAPER_METHODS
from fedtaco.report.differences import confidence_interval
from fedtaco.report.table_formats import format_table

PRESETS = ("benchmark-mlp", "benchmark-participation", "benchmark-cnn")
STEADY, TWIN = "taco-steady", "taco-steady-uniform"
AT_HIGH_RATES = ("fedavg", "fedacg", "scaffold", "taco", STEADY)


def main() -> None:
    at_high_rates = []
    for preset in PRESETS:
        path = Path(__file__).parent / f"{preset}.json"
        if path.exists():
            record = read_record(path)
            at_high_rates += [high_rate_row(record, task) for task in record.tasks]
            write_page(record, DOCS / f"{preset}.md")
            tasks = [TaskComparison(task, record.reference) for task in record.tasks]
            draw_differences(tasks, DOCS / "images" / f"{preset}.svg")
            overview = format_table(findings(record)[0], "markdown").rstrip()
            write_sections(DOCS / "results.md", {preset: overview, f"{preset}-steady": steady_table(record)})

    headers = ["preset", "task", "rate", *(f"{name}, %" for name in AT_HIGH_RATES)]
    write_sections(DOCS / "results.md", {"benchmark-rates": markdown_table(headers, at_high_rates)})


def high_rate_row(record: BenchmarkRecord, task: TaskRecord) -> list[str]:
    """Return the accuracies on held-out samples at the highest local rate that all methods tried on a task."""
    table = rates_table(task, record.tuning_seeds[0])
    accuracies = {name: cells for name, *cells in table.rows}
    own = [accuracies[name] for name in AT_HIGH_RATES if name in accuracies]
    column = max(place for place, cells in enumerate(zip(*own, strict=True)) if MISSING not in cells)
    rate = table.header[1 + column].removeprefix("rate ").removesuffix(", %")
    return [
        record.name,
        task.name,
        rate,
        *(accuracies[name][column] if name in accuracies else MISSING for name in AT_HIGH_RATES),
    ]


def steady_table(record: BenchmarkRecord) -> str:
    """Return how taco-steady compares with the best of the paper's methods on each task."""
    headers = ["task", "taco-steady, %", "best of the paper's methods", "difference", "fastest of them"]
    headers += ["difference in rounds", "fewest rounds within a point"]
    headers += ["fewest of the paper's methods", "seeds that swing", "difference to taco", f"difference to {TWIN}"]
    return markdown_table(headers, [steady_row(TaskComparison(task, record.reference)) for task in record.tasks])


def steady_row(comparison: TaskComparison) -> list[object]:
    entries = {entry.name: entry for entry in comparison.entries}
    paper = [method.name for method in PAPER_METHODS if method.name in entries]
    best = next(name for name in comparison.ranking if name in paper)
    rounds = {name: comparison.first_rounds(entries[name].evaluation) for name in [*paper, STEADY]}
    fastest = min(paper, key=lambda name: fmean(rounds[name].values()))
    tried = {name: tried_with_all_seeds(entry.tuning, comparison.rounds) for name, entry in entries.items()}
    earliest = earliest_settings(tried)
    fewest = {name: f"{one.rounds:.1f}" for name, one in earliest.items()}
    first = min((name for name in paper if name in earliest), key=lambda name: earliest[name].rounds, default=None)
    later = confidence_interval([rounds[STEADY][seed] - rounds[fastest][seed] for seed in comparison.seeds])
    return [
        comparison.task.name,
        f"{100 * fmean(comparison.accuracies[STEADY].values()):.1f}",
        best,
        comparison.difference(STEADY, best),
        fastest,
        f"{later.mean:+z.1f} [{later.low:+.1f}, {later.high:+.1f}]".replace("-", "−"),
        fewest.get(STEADY, "–"),
        f"{fewest[first]} ({first})" if first else "–",
        f"{comparison.count_swings(entries[STEADY])} of {len(comparison.seeds)}",
        comparison.difference(STEADY, "taco") or "–",
        comparison.difference(STEADY, TWIN) or "–",
    ]


if __name__ == "__main__":
    main()
