"""Find run folders and read what a report needs, without holding all client records in memory."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.errors import InvalidInput
from fedtaco.records import ClientEvaluation, History, PartitionRecord, RunFolder
from fedtaco.records.detection_rates import summarize_detection
from fedtaco.records.run_folder import REPLACEMENT
from fedtaco.records.summary import summarize
from fedtaco.report.heatmap import ColumnBins, Floats, HeatMap, RowBins

SIDE = 120
"""Maximum number of rows and columns of a heat map."""
CELLS = 25 * SIDE**2
"""Maximum number of cells in all heat maps together; with more runs, each heat map has fewer cells."""
VERSIONED = ("fedtaco", "schema", "python", "torch", "numpy")
"""Software whose version is shown."""
NOT_SETTINGS = {"schema", "fedtaco", "ran_by", "own", "seed", "method", "parameters"}
"""Entries of ``config.toml`` that are not shown as settings."""
ReportProgress = Callable[[int, int], None]
"""Function that is called with the number of rounds read so far and the total number of rounds."""


def find_runs(path: Path) -> list[RunFolder]:
    """Return all run folders in ``path``, at any depth; ``path`` itself may be one.

    Returns
    -------
    list of RunFolder
        Sorted by path; numbers in it are compared as numbers, so that ``seed2`` precedes ``seed10``.

    Raises
    ------
    InvalidInput
        If the folder does not exist or contains no run.
    """
    if not path.is_dir():
        raise InvalidInput(f"There is no folder {path}.")
    folders = {config.parent for config in path.rglob("config.toml")}
    found = sorted((folder for folder in folders if folder.name != REPLACEMENT), key=_natural_key)
    if not found:
        raise InvalidInput(f"There is no run in {path}: no folder in it has a config.toml.")
    return [RunFolder(folder) for folder in found]


def _natural_key(path: Path) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))]


@dataclass(frozen=True, eq=False)
class RunData:
    """The data of one run that a report needs."""

    config: dict[str, Any]
    versions: dict[str, list[str]]
    """Versions of fedtaco and its dependencies; several if the run was resumed under another version."""
    is_finished: bool
    summary: dict[str, Any]
    """The summary of the run; if it has not ended, the same figures for the rounds so far."""
    history: History
    """Records of the rounds only; those of the clients are averaged in ``heat``."""
    partition: PartitionRecord
    heat: HeatMap
    evaluations: list[ClientEvaluation]
    """The final model on each client's own samples."""

    @property
    def rounds(self) -> int:
        return len(self.history)

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    def column(self, name: str) -> Floats:
        """Return a field of every round, or an own metric after ``metrics/``; nan where it is not known."""
        _, is_own, metric = name.partition("metrics/")
        values = [record.metrics.get(metric) if is_own else getattr(record, name) for record in self.history]
        return np.array(values, dtype=np.float64)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings and parameters except method and seed."""
        return list_settings(self.config)


def list_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return all settings and parameters of a run except method and seed."""
    shown = {name: value for name, value in config.items() if name not in NOT_SETTINGS}
    return {**shown, **config["parameters"]}


def read_runs(folders: Sequence[RunFolder], on_progress: ReportProgress) -> list[RunData]:
    """Read several runs.

    Parameters
    ----------
    folders
        Runs of one dataset, finished or not; a folder that is named twice counts once.
    on_progress
        Called while records are read.

    Raises
    ------
    InvalidInput
        If a run cannot be read, or runs are of several datasets.
    """
    distinct = {folder.path.resolve(): folder for folder in folders}.values()
    configs = [folder.config() for folder in distinct]
    datasets = sorted({str(config.get("dataset")) for config in configs})
    if len(datasets) > 1:
        raise InvalidInput(
            f"The runs are of the datasets {', '.join(datasets)}; a report shows one: name the runs of one dataset."
        )
    side = max(SIDE // 5, min(SIDE, math.isqrt(CELLS // len(configs))))
    total = sum(config.get("rounds", 0) for config in configs)
    runs: list[RunData] = []

    def advance(latest_round: int) -> None:
        on_progress(sum(run.config["rounds"] for run in runs) + latest_round, total)

    for folder in distinct:
        runs.append(read_run(folder, side, advance))
    return runs


def read_run(folder: RunFolder, side: int, on_progress: Callable[[int], None]) -> RunData:
    """Read a run folder.

    Parameters
    ----------
    folder
        The run, finished or not.
    side
        Maximum number of rows and columns of the heat map.
    on_progress
        Called with the number of the latest round read.

    Raises
    ------
    InvalidInput
        If a file is damaged or was written by another version of fedtaco.
    """
    config, ended = folder.config(), folder.summary()
    written, partition = folder.written(), folder.partition()
    history = History(folder.rounds(written))
    rows = RowBins.of(partition.groups, len(partition.label_counts), side)
    heat = HeatMap(rows, ColumnBins(len(history), side))
    heat.fill(folder.client_rows(written), on_progress)
    if (diagnostics := folder.diagnostics(written)) is not None:
        heat.add_diagnostics(diagnostics)
    summary = ended or _summary_so_far(config, history, partition, heat)
    return RunData(
        config,
        _versions(config),
        ended is not None,
        summary,
        history,
        partition,
        heat,
        folder.client_evaluations(written),
    )


def _versions(config: dict[str, Any]) -> dict[str, list[str]]:
    """Return the recorded versions.

    >>> _versions({"fedtaco": "0.1.0", "ran_by": {"versions": [{"torch": "2.12"}, {"torch": "2.13"}]}})
    {'fedtaco': ['0.1.0'], 'schema': [], 'python': [], 'torch': ['2.12', '2.13'], 'numpy': []}
    """
    sources = [config, *config.get("ran_by", {}).get("versions", [])]
    return {name: [str(one[name]) for one in sources if name in one] for name in VERSIONED}


def _summary_so_far(
    config: dict[str, Any], history: History, partition: PartitionRecord, heat: HeatMap
) -> dict[str, Any]:
    """Return a summary of an unfinished run, with the figures of its rounds so far."""
    expelled = {client: line["round"] for client, line in heat.expelled.items()}
    return {
        **summarize(history, config["target"], partition),
        "method": config["method"],
        "seed": config["seed"],
        "personal": config.get("personal"),
        "compress": config.get("compress"),
        "alpha": heat.mean_alpha(partition.kinds),
        "expelled": sorted(expelled),
        "detection": summarize_detection(expelled, partition, None),
        "partition_notes": [],
        "stopped": None,
        "ended_early": None,
    }
