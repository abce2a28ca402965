"""A grid over settings and parameters, tuned on held-out training data with the same budget for every method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.build import check_overrides, method_class, refuse_repeats, relevant
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.many import folder_taken, run_all
from fedtaco.experiment.runs import Manner
from fedtaco.experiment.watching import Watcher
from fedtaco.randomness import generator

NOT_TUNED = {"method", "seed", "parameters", "dataset", "validation", "target", "detector", "engine", "device"}
"""What makes runs incomparable, or has an option of its own."""
Grid = Mapping[str, Sequence[float | str]]
Point = dict[str, float | str]


@dataclass(frozen=True)
class Trial:
    """One setting of one method, with a run for each seed."""

    method: str
    point: Point
    experiments: list[Experiment]

    @property
    def folder(self) -> str:
        """A readable name for what is varied."""
        return "_".join([method_class(self.method).name, *(f"{name}={value}" for name, value in self.point.items())])


@dataclass(frozen=True)
class Tuned:
    """How a method did with its best setting, chosen by the mean accuracy on what was held out."""

    method: str
    tried: int
    point: Point
    validation_accuracy: float
    summaries: list[dict[str, Any]]


def plan_sweep(
    methods: Sequence[str], grid: Grid, seeds: Sequence[int], budget: int | None = None, **settings: Any
) -> list[Trial]:
    """The trials of each method: its own part of the grid, or ``budget`` points drawn from it."""
    if not settings.get("validation"):
        raise InvalidInput("A sweep chooses by accuracy on held-out training data; give validation, such as 0.1.")
    if not grid:
        raise InvalidInput("The grid is empty; give something to vary, as --grid local_lr=0.01,0.1.")
    if budget is not None and budget < 1:
        raise InvalidInput(f"budget is {budget}; it must be at least 1.")
    grid = {name: list(dict.fromkeys(values)) for name, values in grid.items()}
    names = {name for name in grid if "." not in name}
    allowed = set(Experiment.model_fields) - NOT_TUNED
    for name in names - allowed:
        raise unknown("setting to tune", name, allowed)
    refuse_repeats(methods)
    detector = settings.get("detector") or "off"
    fixed = settings.pop("parameters", {})
    parameters = {name: values[0] for name, values in grid.items() if "." in name}
    check_overrides({**fixed, **parameters}, methods, detector)
    trials = []
    for method in methods:
        own = {name: grid[name] for name in [*names, *relevant(parameters, method, detector)]}
        for point in _points(own, budget):
            values = {**fixed, **{name: value for name, value in point.items() if "." in name}}
            varied = {name: value for name, value in point.items() if "." not in name}
            experiments = [
                Experiment.of(
                    **{**settings, **varied, "method": method, "seed": seed},
                    parameters=relevant(values, method, detector),
                )
                for seed in seeds
            ]
            trials.append(Trial(method, point, experiments))
    return trials


def run_sweep(trials: Sequence[Trial], out: Path, manner: Manner, watcher: Watcher) -> list[Tuned]:
    """Run all trials, each run in a folder of its own below ``out``; the best of each method, in order."""
    folder_taken(out)
    runs = [(one, out / trial.folder / f"seed{one.seed}") for trial in trials for one in trial.experiments]
    summaries = iter(run_all(runs, manner, watcher))
    results: dict[str, list[Tuned]] = {}
    for trial in trials:
        own = [next(summaries) for _ in trial.experiments]
        name = method_class(trial.method).name
        results.setdefault(name, []).append(Tuned(name, 1, trial.point, _validation(own), own))
    best = [(max(tried, key=lambda one: one.validation_accuracy), len(tried)) for tried in results.values()]
    return [Tuned(one.method, count, one.point, one.validation_accuracy, one.summaries) for one, count in best]


def _validation(summaries: Sequence[Mapping[str, Any]]) -> float:
    """Mean accuracy on what was held out, after the last round; a run that diverged counts as nothing."""
    return fmean(0.0 if run["stopped"] else run["validation_accuracy"] for run in summaries)


def _points(grid: Grid, budget: int | None) -> list[Point]:
    names = sorted(grid)
    points: list[Point] = [dict(zip(names, values, strict=True)) for values in product(*(grid[name] for name in names))]
    if budget is None or budget >= len(points):
        return points
    drawn = generator(0, "sweep").permutation(len(points))[:budget]
    return [points[place] for place in sorted(drawn.tolist())]
