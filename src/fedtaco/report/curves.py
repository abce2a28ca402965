"""Accuracy curves of a method over its seeds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedtaco.report.heatmap import Floats, rounded
from fedtaco.report.method_runs import MethodRuns
from fedtaco.report.run_reader import MEASURES

POINTS = 500
"""Maximum number of points of a curve."""


def is_timed(method: MethodRuns) -> bool:
    """Return whether seconds were measured in every round of every run."""
    return all(run.rounds and np.isfinite(run.seconds).all() for run in method.runs)


def build_curves(method: MethodRuns) -> dict[str, Any]:
    """Return a curve for each accuracy that was measured.

    Each has the mean, lowest and highest accuracy over the seeds that reached a round, by round and,
    if measured, by client seconds.
    """
    seconds = np.cumsum(_over_seeds(np.nanmean, [run.seconds for run in method.runs])) if is_timed(method) else None
    curves = {}
    for measure in MEASURES:
        columns = [run.measures[measure] for run in method.runs]
        mean = _over_seeds(np.nanmean, columns)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known) == 0:
            continue
        points = known[np.unique(np.linspace(0, len(known) - 1, POINTS).round().astype(int))]
        low, high = (_over_seeds(function, columns) for function in (np.nanmin, np.nanmax))
        curves[measure] = {
            "rounds": (points + 1).tolist(),
            "seconds": None if seconds is None else _numbers(seconds[points]),
            "mean": _numbers(mean[points]),
            "low": _numbers(low[points]),
            "high": _numbers(high[points]),
            "seeds": [sum(len(column) > point for column in columns) for point in points.tolist()],
        }
    return curves


def _over_seeds(function: Callable[..., Floats], columns: Sequence[Floats]) -> Floats:
    """Reduce columns of unequal lengths to one number per round; nan if no seed has a value."""
    table = np.full((len(columns), max(map(len, columns))), np.nan)
    for row, column in zip(table, columns, strict=True):
        row[: len(column)] = column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(table, axis=0)


def _numbers(values: Floats) -> list[float | None]:
    return rounded(values[None])[0]
