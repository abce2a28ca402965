"""Run folders found and read for a report: little is kept, however large a run was."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.errors import InvalidInput
from fedtaco.records import Decision, History, RunFolder, Split
from fedtaco.records.files import read_lines, reading
from fedtaco.records.folder import read_round
from fedtaco.report.detection import detection
from fedtaco.report.heat import Columns, Floats, HeatMap, Rows
from fedtaco.report.summary import compare_runs, summarize

MEASURES = ("accuracy", "validation_accuracy")
REQUIRED = {"method", "dataset", "partition", "clients", "rounds", "seed", "target", "parameters"}
VERSIONED = ("fedtaco", "schema", "python", "torch", "numpy")
NOT_SETTINGS = {"schema", "fedtaco", "ran_by", "seed", "method", "parameters"}


def find_runs(path: Path) -> list[RunFolder]:
    """The run folder at ``path``, or all those below it, in the order of their names."""
    if not path.is_dir():
        raise InvalidInput(f"There is no folder {path}.")
    found = sorted({config.parent for config in path.rglob("config.toml")}, key=_natural)
    if not found:
        raise InvalidInput(f"There is no run in {path}: no folder in it has a config.toml.")
    return [RunFolder(folder) for folder in found]


def _natural(path: Path) -> list[Any]:
    """Orders seed2 before seed10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(path))]


@dataclass(frozen=True, eq=False)
class Run:
    """What a report needs of one run."""

    config: dict[str, Any]
    versions: dict[str, list[str]]
    """What made it; more than one where it went on under another."""
    finished: bool
    summary: dict[str, Any]
    """How the run ended; worked out from the records where it has not."""
    measures: dict[str, Floats]
    """Of each round; nan where it was not measured."""
    seconds: Floats
    """Of each round's slowest client; nan where the engine could not tell."""
    dropped: list[tuple[int, int, str]]
    """Round, client and reason of each upload that was left out."""
    expulsions: dict[int, Decision]
    """Why each expelled client was, where that was recorded."""
    split: Split
    heat: HeatMap

    @property
    def rounds(self) -> int:
        return len(self.seconds)

    @property
    def seed(self) -> int:
        return int(self.config["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """All that was set but method and seed, parameters among the rest."""
        own = {name: value for name, value in self.config.items() if name not in NOT_SETTINGS}
        return {**own, **self.config["parameters"]}


def read_run(folder: RunFolder, side: int, tell: Callable[[int], None]) -> Run:
    """Read a run, its clients over rounds drawn together into at most ``side`` rows and columns."""
    with reading(folder.path / "config.toml"):
        config = folder.config()
        missing = sorted(REQUIRED - set(config))
        if missing:
            raise KeyError(", ".join(missing))
        versions = _versions(config)
    with reading(folder.path / "rounds.jsonl") as path:
        history = History([read_round(row) for row in read_lines(path)])
        measures = {name: np.array(history.column(name), dtype=np.float64) for name in MEASURES}
        seconds = np.array(history.column("slowest_client_seconds"), dtype=np.float64)
    split = folder.partition()
    with reading(folder.path / "clients.jsonl"):
        heat = HeatMap(Rows.of(split.groups, len(split.label_counts), side), Columns(len(history), side))
        heat.fill(folder.client_rows(), tell)
    with reading(folder.path / "summary.json"):
        ended = folder.summary()
        summary = ended or _summary_so_far(config, history, split, heat)
        if ended:
            compare_runs([ended])
    dropped = [(record.round, client, reason) for record in history for client, reason in record.dropped.items()]
    expulsions = {
        decision.client: decision
        for record in history
        for decision in record.decisions
        if decision.action == "expelled"
    }
    return Run(config, versions, ended is not None, summary, measures, seconds, dropped, expulsions, split, heat)


def _versions(config: dict[str, Any]) -> dict[str, list[str]]:
    """What made a run, as far as it is recorded.

    >>> _versions({"fedtaco": "0.1.0", "ran_by": {"versions": [{"torch": "2.12"}, {"torch": "2.13"}]}})
    {'fedtaco': ['0.1.0'], 'schema': [], 'python': [], 'torch': ['2.12', '2.13'], 'numpy': []}
    """
    sources = [config, *config.get("ran_by", {}).get("versions", [])]
    return {name: [str(one[name]) for one in sources if name in one] for name in VERSIONED}


def _summary_so_far(config: dict[str, Any], history: History, split: Split, heat: HeatMap) -> dict[str, Any]:
    return {
        **summarize(history, config["target"], split),
        "method": config["method"],
        "alpha": heat.mean_alpha(split.kinds),
        "expelled": sorted(heat.expelled),
        "detection": detection({client: line["round"] for client, line in heat.expelled.items()}, split, None),
        "partition_notes": [],
        "stopped": None,
    }


@dataclass(frozen=True)
class Series:
    """One method with one setting, over its seeds."""

    name: str
    runs: list[Run]

    @property
    def unfinished(self) -> list[Run]:
        return [run for run in self.runs if not run.finished]


def as_series(runs: Sequence[Run]) -> list[Series]:
    """Runs that differ in their seeds alone, together; named by method and by what sets it apart."""
    names = {run.config["method"]: run.summary["method"] for run in sorted(runs, key=lambda run: run.finished)}
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(str(names[run.config["method"]]), []).append(run)
    gathered: dict[str, list[Run]] = {}
    for method, own in by_method.items():
        varied = varying([run.settings for run in own])
        for run in own:
            given = [f"{name.removeprefix(method + '.')}={shown(run.settings.get(name))}" for name in varied]
            gathered.setdefault(f"{method} ({', '.join(given)})" if given else method, []).append(run)
    return [Series(name, sorted(own, key=lambda run: run.seed)) for name, own in gathered.items()]


def varying(settings: Sequence[dict[str, Any]]) -> list[str]:
    """The names whose values are not the same in all.

    >>> varying([{"rounds": 5, "taco.gamma": 0.1}, {"rounds": 5, "taco.gamma": 0.2}])
    ['taco.gamma']
    """
    names = dict.fromkeys(name for own in settings for name in own)
    return [name for name in names if any(own.get(name) != settings[0].get(name) for own in settings)]


def shown(value: Any) -> str:
    """A setting as a person reads it."""
    return "default" if value is None else str(value)
