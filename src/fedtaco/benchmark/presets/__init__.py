"""Presets of benchmarks: one TOML file says which methods are compared on which tasks, and how they are tuned."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fedtaco.errors import InvalidInput, unknown
from fedtaco.files import packaged_presets, read_packaged_preset, reading
from fedtaco.records.documents import parse_toml, read_bounded
from fedtaco.records.formatting import pluralize
from fedtaco.records.schema import read_as
from fedtaco.settings.checks import check_setting
from fedtaco.settings.declarations import ExperimentConfig

PER_STEP = "/K"
"""Ending of a value in a grid that is divided by the number of local steps, as in ``"0.5/K"``."""
NOT_IN_TASKS = ("method", "parameters", "seed", "validation", "eval_every", "server_lr", "local_epochs", "local_work")
"""Settings that the protocol determines; by the last two, clients would not all take the same number of steps."""
GridValues = list[float | str]


class _MethodEntry(TypedDict):
    rates: NotRequired[list[float]]
    grid: NotRequired[dict[str, GridValues]]
    momentum: NotRequired[str]


class _PresetEntries(TypedDict):
    title: str
    reference: str
    budget: int
    rates: list[float]
    tuning_seeds: list[int]
    finalists: NotRequired[int]
    seeds: list[int]
    twins: NotRequired[list[list[str]]]
    methods: dict[str, _MethodEntry]
    tasks: list[dict[str, str | float | bool | list[int]]]


@dataclass(frozen=True)
class TunedMethodPlan:
    """A method and what is tried for it."""

    method: str
    """Its name, or ``package.module:Class``."""
    rates: Sequence[float]
    """Local learning rates to try, as multiples of the base rate of a task."""
    grid: Mapping[str, GridValues] = field(default_factory=dict)
    """Values to try for its parameters."""

    @property
    def setting_count(self) -> int:
        """Number of different settings to try."""
        return math.prod(len(set(values)) for values in (self.rates, *self.grid.values()))


@dataclass(frozen=True)
class Task:
    """Data, model and lengths of training on which methods are compared."""

    name: str
    primary: bool
    """Whether conclusions are drawn from this task; it is decided before anything is tuned."""
    seeds: Sequence[int]
    """Seeds of the evaluation."""
    finalists: int
    """Number of settings of every method, the best with the first tuning seed, that are tried with the others too."""
    settings: Mapping[str, Any]
    """Settings of its runs; ``local_lr`` is the base rate."""

    @property
    def folder(self) -> str:
        """Name of the folder of its runs."""
        return re.sub(r"[^\w.:+-]+", "-", self.name)


@dataclass(frozen=True)
class Preset:
    """What a benchmark compares.

    Raises
    ------
    InvalidInput
        If seeds of the evaluation were tuned on, methods are not tuned with equal budgets, or something is missing.
    """

    name: str
    title: str
    reference: str
    """Method to which the others are compared."""
    budget: int
    """Number of settings that are tried for every method."""
    tuning_seeds: Sequence[int]
    methods: Sequence[TunedMethodPlan]
    tasks: Sequence[Task]
    twins: Sequence[Sequence[str]] = ()
    """Pairs of a tailored method and the method with the mean coefficient for all clients, selected or not."""
    momentum: Mapping[str, str] = field(default_factory=dict)
    """For each method that takes steps 1/(1 - β) times as long, selected or not, the parameter that is its β."""
    method_order: Sequence[str] = ()
    """Names of all methods, selected or not, in the order of the page."""
    task_order: Sequence[str] = ()
    """Names of all tasks, selected or not, in the order of the page."""

    def __post_init__(self) -> None:
        folders = [task.folder for task in self.tasks]
        if alike := [task.name for task in self.tasks if folders.count(task.folder) > 1]:
            raise InvalidInput(f"The tasks {', '.join(alike)} would use the same folder; name them differently.")
        for pair in self.twins:
            if len(pair) != 2 or not set(pair) <= set(self.method_order):
                raise InvalidInput(f"twins contains {', '.join(pair)}; each entry must be a pair of the methods.")
        for one in self.methods:
            _check_grid(one, self.budget)
            if one.method in self.momentum:
                _check_momentum(one, self.momentum[one.method])
        for task in self.tasks:
            _check_task(task, self.tuning_seeds, self.budget)

    def select(self, tasks: Sequence[str], methods: Sequence[str]) -> Preset:
        """Return the preset with only these tasks and methods; an empty list selects all.

        Raises
        ------
        InvalidInput
            If the preset lacks one of them.
        """
        for kind, chosen, known in (
            ("task", tasks, [task.name for task in self.tasks]),
            ("method", methods, [one.method for one in self.methods]),
        ):
            for name in set(chosen) - set(known):
                raise unknown(f"{kind} in {self.name}", name, known)
        return replace(
            self,
            tasks=[task for task in self.tasks if not tasks or task.name in tasks],
            methods=[one for one in self.methods if not methods or one.method in methods],
        )


def preset_names() -> list[str]:
    """Return the names of the presets that come with fedtaco."""
    return packaged_presets(__name__)


def load_preset(name: str) -> Preset:
    """Return a preset by name, or read one from a TOML file. Nothing that it names is imported.

    Raises
    ------
    InvalidInput
        If there is no such preset or file, or it is not valid.

    Examples
    --------
    >>> [one.method for one in load_preset("benchmark-smoke").methods]
    ['fedavg', 'fedacg', 'taco']
    """
    if name.endswith(".toml"):
        path = Path(name)
        with reading(path, problem="is not valid"):
            return read_preset(path.stem, read_bounded(path))
    if name not in preset_names():
        raise unknown("benchmark", name, [*preset_names(), "PATH.toml"])
    return read_preset(name, read_packaged_preset(__name__, name))


def read_preset(name: str, text: str) -> Preset:
    """Return the preset that the text of a file describes.

    Raises
    ------
    InvalidInput
        If the preset contradicts the protocol.
    ValueError
        If an entry is missing or of another type.
    """
    parsed = parse_toml(text)
    for entry in parsed.keys() - _PresetEntries.__annotations__.keys():
        raise unknown("entry of a preset", entry, _PresetEntries.__annotations__)
    entries = read_as(_PresetEntries, parsed)
    if entries["budget"] < 1:
        raise InvalidInput(f"budget is {entries['budget']}; it must be at least 1.")
    defaults = {"primary": False, "seeds": entries["seeds"], "finalists": entries.get("finalists", entries["budget"])}
    tasks = [_read_task({**defaults, **one}) for one in entries["tasks"]]
    if not any(task.primary for task in tasks):
        raise InvalidInput("No task is primary; mark those that conclusions are drawn from with primary = true.")
    if entries["reference"] not in entries["methods"]:
        raise InvalidInput(f"The reference is {entries['reference']}, which is not among the methods; add it to them.")
    return Preset(
        name=name,
        title=entries["title"],
        reference=entries["reference"],
        budget=entries["budget"],
        tuning_seeds=entries["tuning_seeds"],
        methods=[_read_method(method, one, entries["rates"]) for method, one in entries["methods"].items()],
        tasks=tasks,
        twins=entries.get("twins", []),
        momentum={method: one["momentum"] for method, one in entries["methods"].items() if "momentum" in one},
        method_order=list(entries["methods"]),
        task_order=[task.name for task in tasks],
    )


def _read_method(method: str, entry: _MethodEntry, rates: Sequence[float]) -> TunedMethodPlan:
    for name in entry.keys() - _MethodEntry.__annotations__.keys():
        raise unknown(f"entry of methods.{method}", name, _MethodEntry.__annotations__)
    return TunedMethodPlan(method, entry.get("rates", rates), entry.get("grid", {}))


def _read_task(entry: Mapping[str, Any]) -> Task:
    for name, kind in (("name", str), ("primary", bool), ("seeds", list), ("finalists", int)):
        if not isinstance(entry.get(name), kind):
            raise ValueError(f"{name} of a task is missing or not valid")
    settings = {name: value for name, value in entry.items() if name not in ("name", "primary", "seeds", "finalists")}
    return Task(entry["name"], entry["primary"], entry["seeds"], entry["finalists"], settings)


def _check_grid(one: TunedMethodPlan, budget: int) -> None:
    for name, values in one.grid.items():
        if "." not in name:
            raise InvalidInput(
                f"The grid of {one.method} contains {name}, which is not a parameter of the method; write local "
                "learning rates as rates, and all other settings into the tasks, so that they are the same for all."
            )
        if not values:
            raise InvalidInput(f"The grid of {one.method} has no values for {name}; list those to try.")
    if one.setting_count != budget:
        raise InvalidInput(
            f"{one.method} has {pluralize(one.setting_count, 'setting')} to try and budget is {budget}; every method "
            "must have that many, for instance by a finer grid of rates."
        )


def _check_momentum(one: TunedMethodPlan, parameter: str) -> None:
    if parameter not in one.grid:
        raise unknown(f"parameter in the grid of {one.method}", parameter, one.grid)
    if not all(isinstance(value, int | float) and 0 <= value < 1 for value in one.grid[parameter]):
        raise InvalidInput(
            f"The momentum of {one.method} is {parameter}; its grid must give it numbers of at least 0 and below 1."
        )


def _check_task(task: Task, tuning_seeds: Sequence[int], budget: int) -> None:
    if "," in task.name or not re.search(r"\w", task.name):
        raise InvalidInput(
            f"A task is named '{task.name}'; a name needs a letter or digit, and no commas, which separate names."
        )
    for name in NOT_IN_TASKS:
        if name in task.settings:
            raise InvalidInput(f"The task {task.name} sets {name}, which the protocol determines; remove it.")
    if not 1 <= task.finalists <= budget:
        raise InvalidInput(
            f"The task {task.name} has finalists = {task.finalists}; it must be at least 1 and at most the budget, "
            f"{budget}."
        )
    used_twice = sorted(set(task.seeds) & set(tuning_seeds))
    if used_twice:
        raise InvalidInput(
            f"The task {task.name} is evaluated with seeds that it is tuned on ({', '.join(map(str, used_twice))}); "
            "evaluate with fresh ones."
        )
    for kind, seeds in (("seeds", task.seeds), ("tuning_seeds", tuning_seeds)):
        if not seeds or len(set(seeds)) < len(seeds):
            raise InvalidInput(f"{kind} of the task {task.name} is {list(seeds)}; name each seed once, at least one.")
        for seed in seeds:
            check_setting(ExperimentConfig, "seed", seed)
