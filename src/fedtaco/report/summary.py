"""A run in a few numbers, and several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from fedtaco.records import History, RoundRecord, Split
from fedtaco.report.detection import detection, expulsions, freeloader_weight

DETECTED = ("freeloaders", "caught", "wronged")
FAILURE = 0.9
"""A run whose final accuracy stays below this part of the target has failed (×)."""


def summarize(history: History, target: float, split: Split) -> dict[str, Any]:
    """What ``summary.json`` holds of a history."""
    accuracies = [record.accuracy for record in history if record.accuracy is not None]
    chosen = _best_by_validation(history)
    return {
        "rounds": len(history),
        "final_accuracy": history.final_accuracy,
        "best_accuracy": max(accuracies, default=None),
        "last_five_accuracy": fmean(accuracies[-5:]) if accuracies else None,
        "output_accuracy": history.rounds[-1].output_accuracy if history.rounds else None,
        "validation_accuracy": history.rounds[-1].validation_accuracy if history.rounds else None,
        "chosen_round": None if chosen is None else chosen.round,
        "chosen_validation_accuracy": None if chosen is None else chosen.validation_accuracy,
        "chosen_accuracy": None if chosen is None else chosen.accuracy,
        "worst_tenth_accuracy": worst_tenth(client_accuracies(history.rounds[-1], split)) if history.rounds else None,
        "target": target,
        "rounds_to_target": history.rounds_to(target),
        "seconds_to_target": history.seconds_to(target),
        "client_seconds": history.client_seconds[-1] if history.is_timed else None,
        "wall_seconds": sum(record.wall_seconds for record in history),
        "alpha": mean_alpha(history, split.kinds),
        "dropped_uploads": sum(len(record.dropped) for record in history),
        "expelled": sorted({record.client for record in history.clients if record.expelled}),
        "detection": detection(expulsions(history), split, freeloader_weight(history, split)),
    }


def _best_by_validation(history: History) -> RoundRecord | None:
    """The first of the rounds with the best validation accuracy; ``None`` where nothing was held out."""
    judged = [record for record in history if record.validation_accuracy is not None]
    return max(judged, key=lambda record: record.validation_accuracy or 0.0, default=None)


def client_accuracies(record: RoundRecord, split: Split) -> list[float] | None:
    """The accuracy each honest client can expect: that of every class in the test set, by its own mix of labels."""
    if record.class_accuracy is None:
        return None
    known = [(place, value) for place, value in enumerate(record.class_accuracy) if value is not None]
    columns, values = [place for place, _ in known], np.array([value for _, value in known])
    honest = [client for client in range(len(split.label_counts)) if client not in split.freeloaders]
    counts = split.label_counts[np.ix_(honest, columns)]
    return [float(own @ values / own.sum()) for own in counts if own.sum() > 0]


def worst_tenth(accuracies: Sequence[float] | None) -> float | None:
    """The mean over the tenth of the clients (at least one) with the lowest accuracy.

    >>> worst_tenth([0.9, 0.1, 0.5])
    0.1
    """
    return fmean(sorted(accuracies)[: max(1, len(accuracies) // 10)]) if accuracies else None


def mean_alpha(history: History, kinds: Sequence[str]) -> dict[str, float]:
    """Mean α over rounds and the clients of each kind."""
    gathered: dict[str, list[float]] = {}
    for record in history.clients:
        if record.alpha is not None:
            gathered.setdefault(kinds[record.client], []).append(record.alpha)
    return {kind: fmean(values) for kind, values in sorted(gathered.items())}


@dataclass(frozen=True)
class Comparison:
    """One method over several seeds. ``None`` stands for a figure that cannot be had."""

    method: str
    seeds: int
    accuracy: float | None
    accuracy_deviation: float | None
    rounds_to_target: str
    """A mean; ``N+`` where a seed did not get there in N rounds; ``×`` where one failed; ``–`` without a test."""
    client_seconds: float | None
    """``None`` where the engine could not tell clients apart."""
    worst_tenth_accuracy: float | None
    alpha: Mapping[str, float]
    output_accuracy: float | None
    """Of the model that the method itself returns, where that is not the global one (TACO's z)."""
    stopped: int
    """How many seeds diverged; they are not in the means."""
    dropped_uploads: int
    freeloaders: int
    caught: int
    """Freeloaders that were expelled."""
    wronged: int
    """Honest clients that were expelled."""

    @property
    def reached_target(self) -> bool:
        """Whether every seed got there."""
        return self.rounds_to_target[-1].isdecimal()


def compare_runs(summaries: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """One row a method, in the order in which methods appear."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        by_method.setdefault(summary["method"], []).append(summary)
    return [_row(method, runs) for method, runs in by_method.items()]


def _row(method: str, runs: list[Mapping[str, Any]]) -> Comparison:
    finished = [run for run in runs if run["stopped"] is None]
    accuracies = [run["final_accuracy"] for run in finished if run["final_accuracy"] is not None]
    groups = {group for run in runs for group in run["alpha"]}
    return Comparison(
        method=method,
        seeds=len(runs),
        accuracy=fmean(accuracies) if accuracies else None,
        accuracy_deviation=stdev(accuracies) if len(accuracies) > 1 else None,
        rounds_to_target=_rounds_to_target(runs),
        client_seconds=_mean([run["client_seconds"] for run in finished]),
        worst_tenth_accuracy=_mean([run["worst_tenth_accuracy"] for run in finished]),
        alpha={group: fmean(run["alpha"][group] for run in runs if group in run["alpha"]) for group in sorted(groups)},
        output_accuracy=_mean([run["output_accuracy"] for run in finished]),
        stopped=len(runs) - len(finished),
        dropped_uploads=sum(run["dropped_uploads"] for run in runs),
        **{name: sum((run.get("detection") or {}).get(name, 0) for run in runs) for name in DETECTED},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _failed(run: Mapping[str, Any]) -> bool:
    return run["final_accuracy"] is not None and run["final_accuracy"] < FAILURE * run["target"]


def _rounds_to_target(runs: list[Mapping[str, Any]]) -> str:
    if any(run["stopped"] is not None or _failed(run) for run in runs):
        return "×"
    if all(run["final_accuracy"] is None for run in runs):
        return "–"
    reached = [run["rounds_to_target"] for run in runs]
    if None in reached:
        return f"{max(run['rounds'] for run in runs)}+"
    return as_count(fmean(reached))


def as_count(mean: float) -> str:
    """A mean of whole numbers, with a tenth where it is not whole.

    >>> as_count(1234.0), as_count(16.75)
    ('1234', '16.8')
    """
    return f"{mean:.1f}".removesuffix(".0")


def as_percent(target: float) -> str:
    """A target as it was set.

    >>> as_percent(0.7), as_percent(0.785)
    ('70%', '78.5%')
    """
    return f"{100 * target:g}%"
