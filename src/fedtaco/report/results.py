"""The results table, with one row per method, for both the HTML page and the terminal.

Methods are compared seed by seed, since runs with the same seed have the same partition, initial weights and batches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from fedtaco.records.formatting import format_mean, format_target
from fedtaco.records.summary import MethodSummary, summarize_methods
from fedtaco.report.runs_by_method import MethodRuns

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A mean difference with its confidence interval, as fractions; ``str`` formats them in percentage points."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


@dataclass(frozen=True)
class ResultRow:
    """One method in the results table."""

    summary: MethodSummary
    """Figures of the finished runs; if there are none, of the rounds so far."""
    difference: Difference | None
    """Final accuracy minus that of the reference; ``None`` if they have fewer than two finished seeds in common."""
    status: str = ""
    """Which runs are unfinished or stopped early; empty if none."""


@dataclass(frozen=True)
class ResultColumn:
    """A column of the results table, with one formatted cell per row."""

    title: str
    cells: list[str]
    unit: str = ""


def build_rows(methods: Sequence[MethodRuns]) -> tuple[list[ResultRow], str | None]:
    """Return one row per method, and the reference method they are compared with.

    The reference is FedAvg, or the first method if FedAvg is not among them; ``None`` if no method has
    two finished seeds in common with it.
    """
    reference = next((method for method in methods if method.runs[0].config["method"] == "fedavg"), methods[0]).name
    finished = [{**run.summary, "method": method.name} for method in methods for run in method.runs if run.is_finished]
    differences = paired_differences(finished, reference)
    rows = [ResultRow(_summary(method), differences.get(method.name), method.status) for method in methods]
    return rows, reference if differences else None


def _summary(method: MethodRuns) -> MethodSummary:
    finished = [run for run in method.runs if run.is_finished]
    started = [run for run in method.runs if run.summary["final_accuracy"] is not None]
    runs = finished or started or method.runs
    (summary,) = summarize_methods([{**run.summary, "method": method.name} for run in runs])
    return summary if finished or summary.reached_target else replace(summary, rounds_to_target="–")


def build_columns(rows: Sequence[ResultRow], target: float | None, reference: str | None) -> list[ResultColumn]:
    """Return the columns of the results table, without the name of the method.

    Parameters
    ----------
    rows
        The methods.
    target
        Test accuracy to which rounds are counted; ``None`` if it differs between runs.
    reference
        Method that the others are compared with; ``None`` omits the column.
    """
    summaries = [row.summary for row in rows]
    groups = sorted({group for row in summaries for group in row.alpha})
    accuracies = [format_mean(row.accuracy, row.accuracy_deviation, scale=100) for row in summaries]
    worst = [format_mean(row.worst_tenth_accuracy, scale=100) for row in summaries]
    columns = [ResultColumn("final accuracy", accuracies, "%")]
    if reference is not None:
        differences = [str(row.difference or "–").replace("-", "−") for row in rows]
        columns.append(ResultColumn(f"difference to {reference}", differences))
    columns.append(ResultColumn("worst tenth", worst, "%"))
    rounds = f"rounds to {'target' if target is None else format_target(target)}"
    columns.append(ResultColumn(rounds, [row.rounds_to_target for row in summaries]))
    if any(row.client_seconds is not None for row in summaries):
        columns.append(ResultColumn("client seconds", [format_mean(row.client_seconds, digits=2) for row in summaries]))
    for group in groups:
        columns.append(ResultColumn(f"α {group}", [format_mean(row.alpha.get(group), digits=2) for row in summaries]))
    return columns


def paired_differences(summaries: Sequence[Mapping[str, Any]], reference: str) -> dict[str, Difference]:
    """Compare the final accuracy of each method with that of a reference method, seed by seed.

    Parameters
    ----------
    summaries
        Summaries of finished runs; those of diverged runs are ignored.
    reference
        Method whose accuracy is subtracted.

    Returns
    -------
    dict
        The difference of each method that has at least two seeds in common with the reference.
    """
    by_method: dict[str, dict[int, float]] = {}
    for run in summaries:
        accuracies = by_method.setdefault(run["method"], {})
        if run["stopped"] is None and run["final_accuracy"] is not None:
            accuracies[run["seed"]] = run["final_accuracy"]
    base = by_method.pop(reference, {})
    differences = {}
    for method, accuracies in by_method.items():
        common = sorted(set(accuracies) & set(base))
        if len(common) > 1:
            differences[method] = confidence_interval([accuracies[seed] - base[seed] for seed in common])
    return differences


def confidence_interval(values: Sequence[float]) -> Difference:
    """Return the mean of at least two values with Student's confidence interval.

    >>> print(confidence_interval([0.01, 0.02, 0.03]))
    +2.0 [-0.5, +4.5]
    """
    from scipy.stats import t

    mean = fmean(values)
    half_width = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Difference(mean, mean - half_width, mean + half_width)
