"""Print the results of runs, comparisons and sweeps in the chosen format, and draw their figure."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtaco.cli.console import print_line, stderr
from fedtaco.cli.options import CliOptions
from fedtaco.cli.sweep_table import build_sweep_table, print_trials, trial_name
from fedtaco.cli.tables import print_comparison
from fedtaco.experiment.sweep import Sweep
from fedtaco.records import History, RunFolder
from fedtaco.report import plot_accuracy
from fedtaco.report.results import build_results
from fedtaco.report.table_formats import format_table, results_table


def print_results(summaries: Sequence[Mapping[str, Any]], folder: Path, options: CliOptions) -> None:
    """Print the results of a run or a comparison, and draw them if a figure is wanted."""
    results = build_results(summaries)
    table = results_table(results)
    if options.format == "table":
        print_comparison(summaries)
    elif options.format == "json":
        _print_json(folder, headline=results.headline, methods=table.records, runs=summaries)
    else:
        print(format_table(table, options.format), end="")
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        by_method.setdefault(summary["method"], []).append(summary)
    _conclude(by_method, folder, options)


def print_sweep(sweep: Sweep, folder: Path, options: CliOptions) -> None:
    """Print the trials of a sweep, and draw the best ones if a figure is wanted."""
    if options.format == "table":
        print_trials(sweep)
    elif options.format == "json":
        methods = [
            {**dataclasses.asdict(tuned), "best": [trial.point for trial in tuned.best]} for tuned in sweep.methods
        ]
        _print_json(folder, methods=methods)
    else:
        print(format_table(build_sweep_table(sweep), options.format), end="")
    best = [(tuned.method, trial) for tuned in sweep.methods for trial in tuned.best]
    _conclude({trial_name(method, trial): trial.summaries for method, trial in best}, folder, options)


def _print_json(folder: Path, **results: Any) -> None:
    print(json.dumps({"folder": str(folder), **results}, indent=2))


def _conclude(runs: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path, options: CliOptions) -> None:
    """Draw runs by name, and print where the results are: on standard error if standard output has another format."""
    console = None if options.format == "table" else stderr
    if options.plot is not None:
        histories = {
            name: [History(RunFolder(summary["folder"]).rounds()) for summary in own] for name, own in runs.items()
        }
        targets = {summary["target"] for own in runs.values() for summary in own}
        plot_accuracy(histories, options.plot, targets.pop() if len(targets) == 1 else None)
        print_line(f"Drawn in {options.plot}", console)
    print_line(f"Recorded in {folder}", console)
