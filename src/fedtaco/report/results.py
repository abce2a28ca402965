"""The results table, with one row per method: the page, the terminal and all file formats show these columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedtaco.records.formatting import format_mean, format_megabytes, format_target
from fedtaco.records.method_summary import MethodSummary, is_unbalanced, shows_traffic, summarize_methods
from fedtaco.report.differences import Difference, paired_differences
from fedtaco.report.headline import describe_results
from fedtaco.report.runs_by_method import MethodRuns

CellValue = float | str | None
"""An unformatted value; ``None`` if it is not available."""
BALANCED, BEST, AVERAGED = "balanced accuracy", "best round", "averaged models"
OWN, TUNED = "own samples", "fine-tuned"
SPARE = (BALANCED, BEST, AVERAGED, OWN, TUNED)
"""Titles of columns that are left out where space is short; the legend contains their figures too."""


TRAFFIC = ("MB up", "MB down")
"""Titles of columns that the terminal shows below the table if they do not fit into it."""


@dataclass(frozen=True)
class ResultRow:
    """One method in the results table."""

    summary: MethodSummary
    """Figures of the finished runs; if there are none, of the rounds so far."""
    difference: Difference | None
    """Final accuracy minus that of the reference; ``None`` if they have fewer than two finished seeds in common."""
    status: str = ""
    """Which runs are unfinished or stopped early; empty if none."""

    @property
    def name(self) -> str:
        """The method, with the state of its runs."""
        return f"{self.summary.method} ({self.status})" if self.status else self.summary.method


@dataclass(frozen=True)
class ResultColumn:
    """A column of the results table."""

    title: str
    cells: list[str]
    """One formatted cell per row."""
    values: dict[str, list[CellValue]]
    """The same, unformatted: one list per number in a cell, by name; accuracies are fractions."""
    unit: str = ""


@dataclass(frozen=True)
class ResultsTable:
    """The results of several methods."""

    rows: list[ResultRow]
    reference: str | None
    """Method that the others are compared with; ``None`` if none has two finished seeds in common with it."""
    target: float | None
    """Test accuracy to which rounds are counted; ``None`` if it differs between runs."""
    headline: list[str]
    """What the results show, in a few sentences."""

    @property
    def columns(self) -> list[ResultColumn]:
        """The columns, without the name of the method."""
        rows, (up, down) = [row.summary for row in self.rows], TRAFFIC

        def is_known(field: str) -> bool:
            return any(getattr(row, field) is not None for row in rows)

        columns = [
            (_accuracy_column(rows), True),
            (_column(BALANCED, rows, "balanced_accuracy"), any(map(is_unbalanced, rows))),
            (_column(BEST, rows, "best_accuracy"), any(row.swinging for row in rows)),
            (_column(AVERAGED, rows, "average_accuracy"), is_known("average_accuracy")),
            (_difference_column(self.rows, self.reference), self.reference is not None),
            (_column("worst tenth", rows, "worst_tenth_accuracy", name="worst_tenth"), True),
            (_column(OWN, rows, "own_accuracy"), is_known("own_accuracy")),
            (_column(TUNED, rows, "tuned_accuracy"), is_known("tuned_accuracy")),
            (_rounds_column(rows, self.target), True),
            (_column("client seconds", rows, "client_seconds", _seconds), is_known("client_seconds")),
            (_column(up, rows, "bytes_up", format_megabytes), shows_traffic(rows)),
            (_column(down, rows, "bytes_down", format_megabytes), shows_traffic(rows)),
        ]
        groups = sorted({group for row in rows for group in row.alpha})
        return [*(column for column, is_shown in columns if is_shown), *(_alpha_column(rows, one) for one in groups)]


def build_results(summaries: Sequence[Mapping[str, Any]]) -> ResultsTable:
    """Return the results of runs that have ended, with one row per method.

    Parameters
    ----------
    summaries
        Summaries of runs with one target, at least one.

    Returns
    -------
    ResultsTable
        Methods are compared with FedAvg, or with the first method if FedAvg is not among them.
    """
    methods = summarize_methods(summaries)
    names = [method.method for method in methods]
    reference = "fedavg" if "fedavg" in names else names[0]
    differences = paired_differences(summaries, reference)
    rows = [ResultRow(method, differences.get(method.method)) for method in methods]
    headline = describe_results(methods, summaries)
    return ResultsTable(rows, reference if differences else None, summaries[0]["target"], headline)


def build_run_results(methods: Sequence[MethodRuns]) -> ResultsTable:
    """Return the results of recorded runs, finished or not, with one row per method and its settings."""
    reference = next((method for method in methods if method.runs[0].config["method"] == "fedavg"), methods[0]).name
    finished = [{**run.summary, "method": method.name} for method in methods for run in method.runs if run.is_finished]
    fedavg = [run for run in finished if run["method"] == "fedavg"]
    differences = paired_differences(finished, reference)
    rows = [ResultRow(_summary(method, fedavg), differences.get(method.name), method.status) for method in methods]
    headline = describe_results(summarize_methods(finished), finished)
    targets = {run.config["target"] for method in methods for run in method.runs}
    target = targets.pop() if len(targets) == 1 else None
    return ResultsTable(rows, reference if differences else None, target, headline)


def _summary(method: MethodRuns, fedavg: Sequence[Mapping[str, Any]]) -> MethodSummary:
    finished = [run for run in method.runs if run.is_finished]
    started = [run for run in method.runs if run.summary["final_accuracy"] is not None]
    runs = finished or started or method.runs
    (summary,) = summarize_methods([{**run.summary, "method": method.name} for run in runs], fedavg)
    return summary if finished else replace(summary, rounds=None, ended_low=0, one_class=0, swinging=0)


def _accuracy_column(summaries: Sequence[MethodSummary]) -> ResultColumn:
    means = [format_mean(row.accuracy, row.accuracy_deviation, scale=100) for row in summaries]
    cells = [f"{mean} ↕" if row.swinging else mean for mean, row in zip(means, summaries, strict=True)]
    values: dict[str, list[CellValue]] = {
        "final_accuracy": [row.accuracy for row in summaries],
        "final_accuracy_deviation": [row.accuracy_deviation for row in summaries],
    }
    if any(row.swinging for row in summaries):
        values["swinging"] = [row.swinging for row in summaries]
    return ResultColumn("final accuracy", cells, values, "%")


def _difference_column(rows: Sequence[ResultRow], reference: str | None) -> ResultColumn:
    differences = [row.difference for row in rows]
    names = {"difference": "mean", "difference_low": "low", "difference_high": "high"}
    values = {name: [getattr(one, field, None) for one in differences] for name, field in names.items()}
    return ResultColumn(f"difference to {reference}", [str(one or "–") for one in differences], values)


def _percent(fraction: float | None) -> str:
    return format_mean(fraction, scale=100)


def _seconds(mean: float | None) -> str:
    return format_mean(mean, digits=2)


def _column(
    title: str,
    rows: Sequence[MethodSummary],
    field: str,
    to_cell: Callable[[float | None], str] = _percent,
    name: str | None = None,
) -> ResultColumn:
    """Return a column with a field of each method's summary; ``name`` is its name among the unformatted values."""
    numbers, unit = [getattr(row, field) for row in rows], "%" if to_cell is _percent else ""
    return ResultColumn(title, list(map(to_cell, numbers)), {name or field: numbers}, unit)


def _rounds_column(summaries: Sequence[MethodSummary], target: float | None) -> ResultColumn:
    title = f"rounds to {'target' if target is None else format_target(target)}"
    cells = [row.rounds_mark for row in summaries]
    values: dict[str, list[CellValue]] = {
        "rounds_to_target": [row.rounds_to_target for row in summaries],
        "diverged": [row.stopped for row in summaries],
        "ended_low": [row.ended_low for row in summaries],
    }
    if any(row.is_upper_bound for row in summaries):
        values["rounds_to_target_is_upper_bound"] = [row.is_upper_bound for row in summaries]
    return ResultColumn(title, cells, values)


def _alpha_column(summaries: Sequence[MethodSummary], group: str) -> ResultColumn:
    means = [row.alpha.get(group) for row in summaries]
    return ResultColumn(f"α {group}", [format_mean(mean, digits=2) for mean in means], {f"alpha_{group}": [*means]})
