#!/usr/bin/env python3
"""Write the pages, tables and figures of the benchmark from its records, such as scripts/benchmark-mlp.json.

A record is the benchmark.json that `fedtaco benchmark` writes, whose runs take hours.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from pages import DOCS, markdown_table, write_sections

from fedtaco.benchmark.figures import draw_differences
from fedtaco.benchmark.page import findings, write_page
from fedtaco.benchmark.record import BenchmarkRecord, TaskRecord, read_record
from fedtaco.benchmark.tables import MISSING
from fedtaco.benchmark.task_comparison import TaskComparison
from fedtaco.benchmark.tried_settings import fastest_accurate_settings, scores_by_rate, tried_with_all_seeds
from fedtaco.methods import PAPER_METHODS
from fedtaco.report.differences import confidence_interval
from fedtaco.report.table_formats import format_table

PRESETS = ("benchmark-mlp", "benchmark-participation", "benchmark-cnn")
STEADY, TWIN = "taco-steady", "taco-steady-uniform"
AT_HIGH_RATES = ("fedavg", "fedacg", "scaffold", "taco", STEADY)
RECOMMENDED = ("fedacg", STEADY)


def main() -> None:
    records = [read_record(Path(__file__).parent / f"{preset}.json") for preset in PRESETS]
    for record in records:
        write_page(record, DOCS / f"{record.name}.md")
        tasks = [TaskComparison(task, record.reference) for task in record.tasks]
        draw_differences(tasks, DOCS / "images" / f"{record.name}.svg")
    for page, sections in all_sections(records).items():
        write_sections(DOCS / page, sections)


def all_sections(records: Sequence[BenchmarkRecord]) -> dict[str, dict[str, str]]:
    """Return the generated sections of each page, by the names of their markers."""
    results = {"benchmark-rates": high_rates_table(records)}
    for record in records:
        results[record.name] = format_table(findings(record)[0], "markdown").rstrip()
        results[f"{record.name}-steady"] = steady_table(record)
    return {"results.md": results, "choosing.md": {"benchmark-gains": gains_table(records)}}


def gains_table(records: Sequence[BenchmarkRecord]) -> str:
    """Return how far the recommended methods are above FedAvg on each task, and their rounds to the target."""
    headers = ["benchmark", "task", "fedavg, %", *(f"{name}, points above" for name in RECOMMENDED)]
    headers += [f"rounds of {name}" for name in ("fedavg", *RECOMMENDED)]
    return markdown_table(headers, [gains_row(record, task) for record in records for task in record.tasks])


def gains_row(record: BenchmarkRecord, task: TaskRecord) -> list[str]:
    comparison = TaskComparison(task, record.reference)
    entries = {entry.name: entry for entry in comparison.entries}
    rounds = [comparison.rounds_to_target(entries[name]).median for name in ("fedavg", *RECOMMENDED)]
    means = {name: 100 * fmean(own.values()) for name, own in comparison.accuracies.items()}
    gains = [
        f"{means[name] - means['fedavg']:+z.1f}".replace("-", "−") + "\\*" * (name in comparison.significantly_above)
        for name in RECOMMENDED
    ]
    return [
        f"[{record.name.removeprefix('benchmark-')}]({record.name}.md)",
        task.name,
        f"{means['fedavg']:.1f}",
        *gains,
        *(f"{comparison.rounds}+" if median is None else str(median) for median in rounds),
    ]


def high_rates_table(records: Sequence[BenchmarkRecord]) -> str:
    """Return the accuracy on held-out samples at the highest local rate that all methods of the table tried."""
    headers = ["preset", "task", "rate", *(f"{name}, %" for name in AT_HIGH_RATES)]
    return markdown_table(headers, [high_rate_row(record, task) for record in records for task in record.tasks])


def high_rate_row(record: BenchmarkRecord, task: TaskRecord) -> list[str]:
    entries = {entry.name: entry for entry in task.entries}
    scores = {
        name: scores_by_rate(entries[name].tuning, record.tuning_seeds[0]) for name in AT_HIGH_RATES if name in entries
    }
    rate = max(set.intersection(*(set(own) for own in scores.values())))
    cells = (f"{100 * scores[name][rate]:.1f}" if name in scores else MISSING for name in AT_HIGH_RATES)
    return [record.name, task.name, f"{rate:g}", *cells]


def steady_table(record: BenchmarkRecord) -> str:
    """Return how taco-steady compares with the best of the paper's methods on each task."""
    headers = ["task", "taco-steady, %", "best of the paper's methods", "difference", "fastest of them"]
    headers += ["difference in rounds", "rounds at the fastest accurate setting"]
    headers += ["fewest of the paper's methods", "seeds that swing", "difference to taco", f"difference to {TWIN}"]
    return markdown_table(headers, [steady_row(TaskComparison(task, record.reference)) for task in record.tasks])


def steady_row(comparison: TaskComparison) -> list[object]:
    entries = {entry.name: entry for entry in comparison.entries}
    paper = [method.name for method in PAPER_METHODS if method.name in entries]
    best = next(name for name in comparison.ranking if name in paper)
    rounds = {name: comparison.first_rounds(entries[name].evaluation) for name in [*paper, STEADY]}
    fastest = min(paper, key=lambda name: fmean(rounds[name].values()))
    tried = {name: tried_with_all_seeds(entry.tuning, comparison.rounds) for name, entry in entries.items()}
    settings = fastest_accurate_settings(tried)
    fewest = {name: f"{one.rounds:.1f}" for name, one in settings.items()}
    first = min((name for name in paper if name in settings), key=lambda name: settings[name].rounds, default=None)
    later = confidence_interval([rounds[STEADY][seed] - rounds[fastest][seed] for seed in comparison.seeds])
    return [
        comparison.task.name,
        f"{100 * fmean(comparison.accuracies[STEADY].values()):.1f}",
        best,
        comparison.difference(STEADY, best),
        fastest,
        f"{later.mean:+z.1f} [{later.low:+.1f}, {later.high:+.1f}]".replace("-", "−"),
        fewest.get(STEADY, MISSING),
        f"{fewest[first]} ({first})" if first else MISSING,
        f"{comparison.count_swings(entries[STEADY])} of {len(comparison.seeds)}",
        comparison.difference(STEADY, "taco") or MISSING,
        comparison.difference(STEADY, TWIN) or MISSING,
    ]


if __name__ == "__main__":
    main()
