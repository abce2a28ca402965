"""The data that the page's script draws: curves of methods, label maps of partitions and heat maps of runs."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedtaco.records.formatting import pluralize
from fedtaco.report.heatmap import ColumnBins, Floats, rounded
from fedtaco.report.measures import MEASURES, Measure, own_measure
from fedtaco.report.run_reader import RunData
from fedtaco.report.runs_by_method import MethodRuns

POINTS = 500
"""Maximum number of points of a curve."""


def is_timed(method: MethodRuns) -> bool:
    """Return whether seconds were measured in every round of every run."""
    return all(run.history.is_timed for run in method.runs)


def has_unequal_work(run: RunData) -> bool:
    """Return whether simulated clients take shares of their steps, drop out or have a deadline."""
    config = run.config
    return config.get("local_work", "full") != "full" or bool(config.get("client_dropout") or config.get("deadline"))


def build_curves(method: MethodRuns, over_simulated_time: bool) -> dict[str, Any]:
    """Return a curve for each measure that was recorded.

    For each point, it contains the round, the client seconds (if measured), the simulated time (if wanted and
    recorded), the megabytes that clients have sent until then (if recorded), the mean, lowest and highest value over
    the seeds that reached the round, and their number.
    """

    def total(name: str) -> Floats:
        return np.cumsum(over_seeds(np.nanmean, [run.column(name) for run in method.runs]))

    seconds, sent = total("slowest_client_seconds") if is_timed(method) else None, total("bytes_up") / 1e6
    durations = (run.column("simulated_duration") for run in method.runs)
    is_simulated = over_simulated_time and all(np.isfinite(own).all() for own in durations)
    simulated = total("simulated_duration") if is_simulated else None
    curves = {}
    for measure in measures_of(method.runs):
        columns = [run.column(measure.name) for run in method.runs]
        mean = over_seeds(np.nanmean, columns)
        known = np.flatnonzero(np.isfinite(mean))
        if len(known) == 0:
            continue
        points = known[np.unique(np.linspace(0, len(known) - 1, POINTS).round().astype(int))]
        low, high = (over_seeds(function, columns) for function in (np.nanmin, np.nanmax))
        curves[measure.name] = {
            "rounds": (points + 1).tolist(),
            "seconds": None if seconds is None else rounded(seconds[points]),
            "megabytes": rounded(sent[points]) if sent.any() else None,
            "simulated": None if simulated is None else rounded(simulated[points]),
            "mean": rounded(mean[points]),
            "low": rounded(low[points]),
            "high": rounded(high[points]),
            "seeds": [sum(len(column) > point for column in columns) for point in points.tolist()],
        }
    return curves


def measures_of(runs: Sequence[RunData]) -> list[Measure]:
    """Return the measures of several runs: those that all runs may have, and then own metrics."""
    return [*MEASURES, *map(own_measure, dict.fromkeys(name for run in runs for name in run.history.metric_names))]


def over_seeds(function: Callable[..., Floats], columns: Sequence[Floats]) -> Floats:
    """Apply ``function``, such as ``np.nanmean``, over columns of unequal lengths; nan for rounds without any value."""
    table = np.full((len(columns), max(map(len, columns))), np.nan)
    for row, column in zip(table, columns, strict=True):
        row[: len(column)] = column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(table, axis=0)


def build_partitions(runs: Sequence[RunData]) -> tuple[list[dict[str, Any]], dict[RunData, int]]:
    """Return the label map of each distinct partition, and the index of each run's partition."""
    keys = [(run.partition.label_counts.tobytes(), tuple(run.partition.groups or ())) for run in runs]
    distinct = list(dict.fromkeys(keys))
    maps = [_label_map(runs[keys.index(key)]) for key in distinct]
    return maps, {run: distinct.index(key) for run, key in zip(runs, keys, strict=True)}


def _label_map(run: RunData) -> dict[str, Any]:
    rows, counts = run.heat.rows, run.partition.label_counts
    labels = ColumnBins(counts.shape[1], run.heat.columns.limit)
    means = np.add.reduceat(rows.average(counts), labels.starts, axis=1)
    return {
        "name": f"{run.config['partition']}, {pluralize(len(counts), 'client')}, seed {run.seed}",
        "clients": len(counts),
        "rows": rows.names,
        "groups": rows.groups,
        "labels": labels.names(first=0),
        "counts": [rounded(row) for row in means],
    }


def build_client_map(index: int, method: MethodRuns, run: RunData, partition: int) -> dict[str, Any]:
    """Return the heat maps of one run.

    Parameters
    ----------
    index
        Index of the method.
    method, run
        The run, and the method to which it belongs.
    partition
        Index of the run's partition.
    """
    row_of = run.heat.rows.of_client
    return {
        "method": index,
        "name": method.seed_name(run),
        "partition": partition,
        "rounds": run.rounds,
        "columns": run.heat.columns.names(first=1),
        "width": run.heat.columns.width,
        "values": run.heat.values(),
        "expelled": sorted({int(row_of[client]) for client in run.heat.expelled}),
        "freeloaders": sorted({int(row_of[client]) for client in run.partition.freeloaders}),
    }
