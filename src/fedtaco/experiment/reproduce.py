"""A table or figure of the paper, run at full or reduced settings; the paper's numbers stand beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.many import folder_taken, run_all
from fedtaco.experiment.presets import SCALES, Panel, Preset, Variant
from fedtaco.experiment.runs import Manner
from fedtaco.experiment.timing import round_seconds
from fedtaco.experiment.watching import Watcher
from fedtaco.records import RunFolder
from fedtaco.report import Cell, Reproduction, threshold_rates

FULL_SEEDS = 3
TIMED_ONLY = ("update-time", "round-time")
UNTIMED = ("accuracy", "rounds", "alpha", "thresholds")


@dataclass(frozen=True)
class Scale:
    """How much of the paper's settings is run."""

    name: str = "full"
    seeds: int | None = None
    rounds: int | None = None
    local_steps: int | None = None

    def __post_init__(self) -> None:
        if self.name not in SCALES:
            raise unknown("scale", self.name, SCALES)

    @property
    def seed_count(self) -> int:
        count = self.seeds if self.seeds is not None else FULL_SEEDS if self.name == "full" else 1
        if count < 1:
            raise InvalidInput(f"seeds is {count}; it must be at least 1.")
        return count

    def cut(self, full: Experiment) -> dict[str, int]:
        """What is run instead of the full rounds and local steps."""
        rounds, steps = {
            "full": (full.rounds, full.local_steps),
            "small": (max(5, full.rounds // 5), max(10, full.local_steps // 5)),
            "smoke": (2, 3),
        }[self.name]
        asked = {"rounds": self.rounds, "local_steps": self.local_steps}
        given = {name: value for name, value in asked.items() if value is not None}
        return {"rounds": rounds, "local_steps": steps, **given}


@dataclass(frozen=True)
class Job:
    """One cell of the table or figure: its experiments, one for each seed."""

    panel: Panel
    variant: Variant
    experiments: list[Experiment]

    def folder(self, experiment: Experiment) -> Path:
        return Path(self.panel.name.replace(" ", "-")) / f"{self.variant.name.replace(' ', '')}-seed{experiment.seed}"


def plan_reproduction(preset: Preset, scale: Scale, **settings: Any) -> tuple[list[Job], list[str]]:
    """The runs, and in words what was cut from the paper's settings."""
    jobs, cuts = [], []
    for panel in preset.panels:
        for variant in panel.variants:
            full = _experiment(panel, variant, 0, settings)
            reduced = scale.cut(full)
            experiments = [
                _experiment(panel, variant, seed, {**settings, **reduced}) for seed in range(scale.seed_count)
            ]
            jobs.append(Job(panel, variant, experiments))
        less = [
            f"{reduced[name]} instead of {getattr(full, name)} {name.replace('_', ' ')}"
            for name in reduced
            if reduced[name] != getattr(full, name)
        ]
        if less:
            cuts.append(f"{panel.name}: {', '.join(less)}")
    return jobs, cuts


def needs_runs(preset: Preset, *, measured: bool) -> bool:
    """Whether whole runs are made, and not only a few rounds timed."""
    return measured or preset.shows not in TIMED_ONLY


def reproduce(
    preset: Preset,
    jobs: Sequence[Job],
    cuts: Sequence[str],
    out: Path,
    manner: Manner,
    watcher: Watcher,
    *,
    measured: bool = False,
) -> Reproduction:
    """Run what the preset needs, below ``out``, and gather it with the paper's numbers.

    Seconds come from a short serial run in which the methods take turns, or, if ``measured``, from the
    whole runs, which must then be serial.
    """
    folder_taken(out)
    summaries: list[dict[str, Any]] = []
    if needs_runs(preset, measured=measured):
        runs = [(one, out / job.folder(one)) for job in jobs for one in job.experiments]
        summaries = run_all(runs, manner, watcher)
    seconds: Mapping[tuple[str, str], list[float]] = {}
    if preset.shows not in UNTIMED and not measured:
        seconds = round_seconds(jobs, manner, watcher)
    found = iter(summaries)
    cells = []
    for job in jobs:
        own = [next(found) for _ in job.experiments] if summaries else []
        folders = [RunFolder(run["folder"]) for run in own]
        histories = [folder.history() for folder in folders]
        pairs = zip(histories, folders, strict=True)
        cells.append(
            Cell(
                panel=job.panel.name,
                variant=job.variant.name,
                local_steps=job.experiments[0].local_steps,
                summaries=own,
                curves=[history.column("accuracy") for history in histories],
                round_seconds=_seconds(own, seconds.get((job.panel.name, job.variant.name))),
                paper=preset.paper_value(job.variant.name, job.panel.name),
                threshold_rates=[threshold_rates(one, folder.partition()) for one, folder in pairs]
                if preset.shows == "thresholds"
                else (),
            )
        )
    return Reproduction(preset.name, preset.title, preset.shows, cells, list(cuts), len(jobs[0].experiments))


def _seconds(summaries: Sequence[Mapping[str, Any]], timed: list[float] | None) -> list[float]:
    """Seconds of the slowest client in a round: of the timed rounds, or the mean of each whole run."""
    if timed is not None:
        return timed
    return [run["client_seconds"] / run["rounds"] for run in summaries if run["client_seconds"] is not None]


def _experiment(panel: Panel, variant: Variant, seed: int, settings: Mapping[str, Any]) -> Experiment:
    own = {**panel.settings, **settings, "method": variant.method, "parameters": dict(variant.parameters)}
    return Experiment.of(**own, seed=seed)
