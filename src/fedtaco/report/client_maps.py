"""Heat maps of the clients: labels by partition, and recorded quantities by run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedtaco.report.heatmap import ColumnBins, rounded
from fedtaco.report.method_runs import MethodRuns
from fedtaco.report.run_reader import RunData


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
        "name": f"{run.config['partition']}, {len(counts):,} clients, seed {run.seed}",
        "clients": len(counts),
        "rows": rows.names,
        "groups": rows.groups,
        "labels": labels.names(first=0),
        "counts": rounded(means),
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
