"""Group runs by method and settings, and name each group by what distinguishes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedtaco.parameters import value_order
from fedtaco.records.formatting import format_count, pluralize
from fedtaco.report.run_reader import RunData


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method that have the same settings, sorted by seed."""

    name: str
    runs: list[RunData]

    @property
    def status(self) -> str:
        """Which runs are unfinished or stopped early, in a few words; empty if all ended as planned."""
        unfinished, seeds = [run for run in self.runs if not run.is_finished], len(self.runs)
        parts = []
        if len(unfinished) == seeds:
            done = fmean(run.rounds for run in unfinished)
            parts.append(f"unfinished, {format_count(done)} of {pluralize(unfinished[0].config['rounds'], 'round')}")
        elif unfinished:
            parts.append(f"{len(unfinished)} of {seeds} seeds unfinished")
        if stopped := sum(run.summary["stopped"] is not None for run in self.runs):
            parts.append("stopped early" if seeds == 1 else f"{stopped} of {seeds} seeds stopped early")
        if ended := sum(run.summary["ended_early"] is not None for run in self.runs):
            parts.append("ended by a callback" if seeds == 1 else f"{ended} of {seeds} seeds ended by a callback")
        return "; ".join(parts)

    def run_name(self, run: RunData) -> str:
        """Return the name of one of the runs, such as "taco, seed 0"."""
        return f"{self.name}, {self.seed_name(run)}"

    def seed_name(self, run: RunData) -> str:
        """Return the seed of one of the runs, such as "seed 0", with a number if several runs have the same seed."""
        same_seed = [other for other in self.runs if other.seed == run.seed]
        return f"seed {run.seed}" + (f", run {self.runs.index(run) + 1}" if len(same_seed) > 1 else "")


def group_by_method(runs: Sequence[RunData]) -> list[MethodRuns]:
    """Group runs that differ only in their seeds; name them by method and by the settings that distinguish them."""
    names = {run.config["method"]: run.summary["method"] for run in sorted(runs, key=lambda run: run.is_finished)}
    groups = group_runs([str(names[run.config["method"]]) for run in runs], [run.settings for run in runs])
    return [
        MethodRuns(name, sorted((runs[index] for index in own), key=lambda run: run.seed))
        for name, own in groups.items()
    ]


def group_runs(methods: Sequence[str], settings: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Group runs by method and by the settings that distinguish runs of a method, in numerical order of these.

    Parameters
    ----------
    methods, settings
        Method and settings of each run.

    Returns
    -------
    dict
        The indices of the runs in each group, by its name.

    Examples
    --------
    >>> group_runs(["taco", "taco", "stem"], [{"taco.gamma": 0.2}, {"taco.gamma": 0.1}, {}])
    {'taco (gamma=0.1)': [1], 'taco (gamma=0.2)': [0], 'stem': [2]}
    """
    by_method: dict[str, list[int]] = {}
    for index, method in enumerate(methods):
        by_method.setdefault(method, []).append(index)
    groups: dict[str, list[int]] = {}
    for method, own in by_method.items():
        varied = distinguishing_settings([settings[index] for index in own])
        for index in sorted(own, key=lambda index: [value_order(settings[index].get(name)) for name in varied]):
            values = {name: format_setting(settings[index].get(name)) for name in varied}
            given = ", ".join(f"{name.removeprefix(method + '.')}={value}" for name, value in values.items())
            groups.setdefault(f"{method} ({given})" if given else method, []).append(index)
    return groups


def varying_settings(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of settings that do not have the same value everywhere.

    >>> varying_settings([{"rounds": 5, "taco.gamma": 0.1}, {"rounds": 5, "taco.gamma": 0.2}])
    ['taco.gamma']
    """
    names = dict.fromkeys(name for own in settings for name in own)
    return [name for name in names if any(own.get(name) != settings[0].get(name) for own in settings)]


def distinguishing_settings(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of the settings that tell runs apart.

    A setting that only some runs have, such as a detector's parameter, is omitted if the other settings suffice.

    >>> distinguishing_settings([{"detector": "off"}, {"detector": "guard", "guard.copy": 1e-8}])
    ['detector']
    """

    def combinations(names: Sequence[str]) -> int:
        return len({tuple(format_setting(own.get(name)) for name in names) for own in settings})

    names = varying_settings(settings)
    for name in [name for name in names if any(name not in own for own in settings)]:
        fewer = [other for other in names if other != name]
        if combinations(fewer) == combinations(names):
            names = fewer
    return names


def format_setting(value: Any) -> str:
    """Format the value of a setting; ``None`` means the default."""
    return "default" if value is None else str(value)
