"""How accurate and how early a method is at each of the settings that were tried for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedtaco.benchmark.record import TuningRunRecord, Values

TOLERANCE = 0.01
"""How far the accuracy on held-out samples may be below the best for settings to be chosen by their speed."""


@dataclass(frozen=True)
class TriedSettings:
    """Values that were tried with every tuning seed, and the means of the results."""

    settings: Values
    score: float
    """Accuracy on held-out samples over the last ten rounds; a run that diverged counts as 0."""
    rounds: float
    """Rounds to the target on held-out samples; a run that does not reach it counts as one round more than it has."""


def tried_with_all_seeds(runs: Sequence[TuningRunRecord], rounds: int) -> list[TriedSettings]:
    """Return the settings that were tried with every tuning seed, without those with which all runs diverged.

    Parameters
    ----------
    runs
        All tuning runs of a method.
    rounds
        Number of rounds of a run that does not diverge.
    """
    groups: dict[frozenset[tuple[str, float | str]], list[TuningRunRecord]] = {}
    for run in runs:
        groups.setdefault(frozenset(run.settings.items()), []).append(run)
    all_seeds = {run.seed for run in runs}
    return [
        TriedSettings(
            own[0].settings,
            fmean(run.validation_score or 0.0 for run in own),
            fmean(run.rounds_to_target or rounds + 1 for run in own),
        )
        for own in groups.values()
        if {run.seed for run in own} == all_seeds and not all(run.stopped for run in own)
    ]


def fastest_accurate_settings(tried: Mapping[str, Sequence[TriedSettings]]) -> dict[str, TriedSettings]:
    """Return the settings with which each method reaches the target first, among those that are accurate.

    Accurate are settings within a point of the best accuracy of all methods; methods without any are left out.

    Examples
    --------
    >>> slow, fast, poor = (TriedSettings({}, *figures) for figures in ((0.84, 20.0), (0.835, 5.0), (0.8, 2.0)))
    >>> fastest_accurate_settings({"fedacg": [slow, fast, poor], "fedavg": [poor]})
    {'fedacg': TriedSettings(settings={}, score=0.835, rounds=5.0)}
    """
    best = max((one.score for own in tried.values() for one in own), default=0.0)
    accurate = {name: [one for one in own if one.score >= best - TOLERANCE] for name, own in tried.items()}
    return {name: min(own, key=lambda one: (one.rounds, -one.score)) for name, own in accurate.items() if own}


def scores_by_rate(runs: Sequence[TuningRunRecord], seed: int) -> dict[float, float]:
    """Return the accuracy on held-out samples at each local rate that was tried with a seed.

    Of several settings with the same rate, the best counts; a run that diverged counts as 0.
    """
    scores: dict[float, float] = {}
    for run in runs:
        rate = run.settings.get("local_lr")
        if run.seed == seed and isinstance(rate, int | float):
            scores[rate] = max(scores.get(rate, 0.0), run.validation_score or 0.0)
    return scores
