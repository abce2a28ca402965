"""Tune the settings and parameters of methods over a grid, by accuracy on held-out training data."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.experiment.specs import (
    MethodGiven,
    build_spec,
    check_parameters,
    choose_methods,
    find_domain,
    relevant_parameters,
)
from fedtaco.methods import METHODS
from fedtaco.parameters import Domain, value_order
from fedtaco.printable import quoted
from fedtaco.randomness import generator
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions
from fedtaco.settings.declarations import ExperimentConfig, declared
from fedtaco.settings.own_task import NOTHING_OWN, OwnTask
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import DETECTORS

NOT_TUNED = {"method", "seed", "parameters", "dataset", "validation", "target", "detector", "engine", "device"}
NOT_TUNED |= {"eval_every", "eval_samples", "fine_tune_steps", "average_last"}
"""Settings that a grid may not contain: they would make runs incomparable, or have an option of their own."""
ParameterGrid = Mapping[str, Sequence[float | str]]
"""The values to try, by setting or parameter."""
Point = dict[str, float | str]
"""One value per setting or parameter of a grid."""
Score = Callable[[Mapping[str, Any]], float | None]
"""Returns the accuracy on held-out samples by which a finished run is judged, given its summary with its ``folder``."""
NO_CLASSES = "A sweep compares accuracies, but the targets of these data are not class labels."
MAX_POINTS = 10_000
"""Maximum number of points in the grid of a method."""


@dataclass(frozen=True)
class Trial:
    """One method at one point of a grid, with a run for each seed."""

    method: str
    point: Point
    specs: list[RunSpec]

    @property
    def folder(self) -> str:
        """Name of the folder with the runs of this trial."""
        return folder_of_trial(self.method, self.point)


def folder_of_trial(name: str, point: Mapping[str, float | str]) -> str:
    """Return the name of the folder for runs at a point.

    >>> folder_of_trial("taco", {"local_lr": 0.1, "taco.gamma": 0.01})
    'taco_local_lr=0.1_taco.gamma=0.01'
    """
    return "_".join([name, *(f"{varied}={value}" for varied, value in point.items())])


@dataclass(frozen=True)
class TrialResult:
    """The results of a trial."""

    point: Point
    validation_accuracy: float
    """Accuracy on held-out samples, mean over seeds; after the last round unless :func:`score_trials` is given another
    score. A run that diverged counts as 0."""
    validation_deviation: float | None
    """Standard deviation over seeds; ``None`` with one seed."""
    summaries: list[dict[str, Any]]
    """Summaries of the runs, one per seed."""

    @property
    def diverged(self) -> int:
        """Number of runs that diverged."""
        return sum(run["stopped"] is not None for run in self.summaries)


@dataclass(frozen=True)
class TunedMethod:
    """All trials of a method."""

    method: str
    trials: list[TrialResult]
    """One result per point, in numerical order of the values."""
    notes: list[str] = field(default_factory=list)
    """Sentences on the choice, such as that the best value is the largest one tried."""

    @property
    def best(self) -> list[TrialResult]:
        """The trials with the highest accuracy on held-out samples: several if they are tied, none if all diverged.

        Trials with fewer runs than others are not considered.
        """
        most_runs = max((len(trial.summaries) for trial in self.trials), default=0)
        running = [trial for trial in self.trials if trial.diverged < len(trial.summaries) == most_runs]
        highest = max((trial.validation_accuracy for trial in running), default=0.0)
        return [trial for trial in running if math.isclose(trial.validation_accuracy, highest, abs_tol=1e-9)]


def plan_sweep(
    methods: Sequence[MethodGiven],
    grid: ParameterGrid,
    seeds: Sequence[int],
    budget: int | None = None,
    task: OwnTask = NOTHING_OWN,
    **settings: Any,
) -> list[Trial]:
    """Return the trials of each method.

    Parameters
    ----------
    methods
        The methods; none may be repeated. ``["all"]`` stands for every registered method.
    grid
        The values to try. A setting such as ``local_lr`` applies to all methods, a parameter such as
        ``taco.gamma`` to its own method only.
    seeds
        Seeds with which each point is run.
    budget
        Number of points to try for each method, drawn at random from its grid; all by default.
    task
        The user's own data and model, if there are any.
    **settings
        Settings that are not varied; ``validation`` is required.

    Raises
    ------
    InvalidInput
        If ``validation`` is missing, the targets are not class labels, or the grid, the budget or a setting is not
        valid.
    """
    if not settings.get("validation"):
        raise InvalidInput("A sweep selects by accuracy on held-out training data; set validation, such as 0.1.")
    if budget is not None and budget < 1:
        raise InvalidInput(f"budget is {budget}; it must be at least 1.")
    targets = None if task.dataset is None else task.dataset.train.labels()
    if targets is not None and targets.is_floating_point():
        raise InvalidInput(NO_CLASSES)
    _check_grid(grid, task)
    grid = {name: list(dict.fromkeys(values)) for name, values in grid.items()}
    setting_names = {name for name in grid if "." not in name}
    chosen = choose_methods(methods)
    fixed = settings.pop("parameters", None) or {}
    parameters = {name: values[0] for name, values in grid.items() if "." in name}
    in_use = [*map(METHODS.class_of, chosen), DETECTORS.class_of(settings.get("detector") or "off")]
    check_parameters({**fixed, **parameters}, in_use)
    trials = []
    for given in chosen:
        method, detector = METHODS.instance(given, fixed), DETECTORS.instance(settings.get("detector") or "off", fixed)
        varied_names = [*setting_names, *relevant_parameters(parameters, [type(method), type(detector)])]
        for point in _points({name: grid[name] for name in varied_names}, budget):
            tried: dict[str, Any] = {
                **{name: value for name, value in point.items() if "." not in name},
                "method": method.with_parameters(point),
                "detector": detector.with_parameters(point),
            }
            specs = [build_spec(task, **{**settings, **tried, "seed": seed}) for seed in seeds]
            trials.append(Trial(method.name, point, specs))
    return trials


def _check_grid(grid: ParameterGrid, task: OwnTask) -> None:
    """Raise InvalidInput if a grid lacks values, or contains settings that may not be tuned."""
    if not grid:
        raise InvalidInput("The grid is empty; name something to vary, such as local_lr, and the values to try.")
    for name, listed in grid.items():
        if isinstance(listed, str) or not isinstance(listed, Sequence):
            raise InvalidInput(f"The grid has {quoted(listed)} for {name}; give a list of the values to try.")
        if not listed:
            raise InvalidInput(f"The grid has no values for {name}; list those to try.")
    allowed = set(declared(ExperimentConfig)) - NOT_TUNED - (set() if task.model is None else {"model"})
    for name in grid:
        if "." not in name and name not in allowed:
            raise unknown("setting to tune", name, allowed)


def final_validation_accuracy(summary: Mapping[str, Any]) -> float | None:
    """Return the accuracy of a run on held-out samples after its last round."""
    accuracy: float | None = summary["validation_accuracy"]
    return accuracy


def run_sweep(trials: Sequence[Trial], out: Path, options: RunOptions, callback: Callback) -> list[TunedMethod]:
    """Run all trials, each run in its own subfolder of ``out``, and return their results by method."""
    return score_trials(trials, run_trials(trials, out, options, callback), final_validation_accuracy)


def run_trials(
    trials: Sequence[Trial], out: Path, options: RunOptions, callback: Callback
) -> list[list[dict[str, Any]]]:
    """Run all trials, each run in its own subfolder of ``out``, and return the summaries of each trial's runs."""
    require_folder_for_runs(out)
    runs = [(one, out / trial.folder / f"seed{one.settings['seed']}") for trial in trials for one in trial.specs]
    summaries = iter(run_all(runs, options, callback))
    return [[next(summaries) for _ in trial.specs] for trial in trials]


def score_trials(trials: Sequence[Trial], summaries: Sequence[list[dict[str, Any]]], score: Score) -> list[TunedMethod]:
    """Return the results by method, given the summaries of each trial's runs."""
    results: dict[str, list[tuple[Trial, TrialResult]]] = {}
    for trial, done in zip(trials, summaries, strict=True):
        results.setdefault(trial.method, []).append((trial, _trial_result(trial.point, done, score)))
    return [_tuned_method(method, done) for method, done in results.items()]


def _trial_result(point: Point, summaries: list[dict[str, Any]], score: Score) -> TrialResult:
    scores = [0.0 if run["stopped"] else score(run) for run in summaries]
    accuracies = [accuracy for accuracy in scores if accuracy is not None]
    if len(accuracies) < len(scores):
        raise InvalidInput(NO_CLASSES)
    deviation = stdev(accuracies) if len(accuracies) > 1 else None
    return TrialResult(point, fmean(accuracies), deviation, summaries)


def _tuned_method(name: str, results: Sequence[tuple[Trial, TrialResult]]) -> TunedMethod:
    trials = sorted((result for _, result in results), key=lambda one: [*map(value_order, one.point.values())])
    tuned = TunedMethod(name, trials)
    if not tuned.best:
        return replace(tuned, notes=[f"All runs of {name} diverged."])
    domains = {varied: find_domain(varied, results[0][0].specs[0]) for varied in trials[0].point}
    notes = (_describe_edge(tuned, varied, domain) for varied, domain in domains.items())
    return replace(tuned, notes=[note for note in notes if note])


def _describe_edge(tuned: TunedMethod, name: str, domain: Domain) -> str | None:
    """Return a sentence if the best value is at the edge of those tried, although values beyond it are valid."""
    tried = sorted({trial.point[name] for trial in tuned.trials}, key=value_order)
    best = {trial.point[name] for trial in tuned.best}
    if len(tried) == 1 or isinstance(tried[-1], str):
        return None
    owner = "" if "." in name else f" for {tuned.method}"
    if best == {tried[-1]} and tried[-1] != domain.high:
        return f"{name} = {tried[-1]} is the largest value tried{owner}; try larger ones."
    if best == {tried[0]} and tried[0] != domain.low:
        return f"{name} = {tried[0]} is the smallest value tried{owner}; try smaller ones."
    return None


def _points(grid: ParameterGrid, budget: int | None) -> list[Point]:
    """Return all points of a grid, or ``budget`` points drawn at random from it."""
    names, count = sorted(grid), math.prod(map(len, grid.values()))
    if count > MAX_POINTS:
        raise InvalidInput(f"The grid has {count:,} points; at most {MAX_POINTS:,} are possible. Name fewer values.")
    points: list[Point] = [dict(zip(names, values, strict=True)) for values in product(*(grid[name] for name in names))]
    if budget is None or budget >= len(points):
        return points
    drawn = generator(0, "sweep").permutation(len(points))[:budget]
    return [points[index] for index in sorted(drawn.tolist())]
