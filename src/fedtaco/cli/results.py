"""Print the results of runs, comparisons and sweeps in the chosen format, and draw their figure."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from fedtaco.cli.console import print_line, stderr
from fedtaco.cli.options import CliOptions
from fedtaco.cli.sweep_table import print_trials
from fedtaco.cli.tables import print_comparison
from fedtaco.experiment.results import Comparison, SeveralRuns, Sweep
from fedtaco.report.results import build_results
from fedtaco.report.table_formats import format_table

OUTDONE_METHODS = {
    "taco": ("taco with γ = 1/K, its default,", "try one of them, or on images γ = 2/K"),
    "taco-aggregation": ("taco-aggregation", "try one of them"),
    "foolsgold": ("foolsgold", "try one of them"),
}
"""Methods below fedacg and taco-steady on most non-IID tasks of the benchmark, and what to do (docs/choosing.md)."""


def print_results(comparison: Comparison, options: CliOptions) -> None:
    """Print the results of a run or a comparison, and draw them if a figure is wanted."""
    if options.format == "table":
        print_comparison(comparison.runs)
    elif options.format == "json":
        headline = build_results(comparison.runs).headline
        _print_json(comparison.folder, headline=headline, methods=comparison.table().records, runs=comparison.runs)
    else:
        print(format_table(comparison.table(), options.format), end="")
    _conclude(comparison, options)


def point_to_better_method(method: str) -> None:
    """Print a line on standard error if the benchmark says that another method is better."""
    if method in OUTDONE_METHODS:
        outdone, advice = OUTDONE_METHODS[method]
        print_line(
            f"In our benchmark fedacg and taco-steady are more accurate than {outdone} on most non-IID tasks, and "
            f"swing less: {advice} (docs/choosing.md).",
            stderr,
        )


def print_sweep(sweep: Sweep, options: CliOptions) -> None:
    """Print the trials of a sweep, and draw the best ones if a figure is wanted."""
    if options.format == "table":
        print_trials(sweep)
    elif options.format == "json":
        methods = [
            {**dataclasses.asdict(tuned), "best": [trial.point for trial in tuned.best]} for tuned in sweep.methods
        ]
        _print_json(sweep.folder, methods=methods)
    else:
        print(format_table(sweep.table(), options.format), end="")
    _conclude(sweep, options)


def _print_json(folder: Path, **results: Any) -> None:
    print(json.dumps({"folder": str(folder), **results}, indent=2))


def _conclude(done: SeveralRuns, options: CliOptions) -> None:
    """Draw the results, and print where they are: on standard error if standard output has another format."""
    console = None if options.format == "table" else stderr
    if options.plot is not None:
        done.plot(options.plot)
        print_line(f"Drawn in {options.plot}", console)
    print_line(f"Recorded in {done.folder}", console)
