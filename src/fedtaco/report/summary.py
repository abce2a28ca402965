"""A run in a few numbers, and several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fedtaco.records import History

FAILURE = 0.9
"""A run whose final accuracy stays below this part of the target has failed (×)."""


def summarize(history: History, target: float, groups: Sequence[str] | None) -> dict[str, Any]:
    """What ``summary.json`` holds of a history."""
    accuracies = [record.accuracy for record in history if record.accuracy is not None]
    return {
        "rounds": len(history),
        "final_accuracy": history.final_accuracy,
        "best_accuracy": max(accuracies, default=None),
        "output_accuracy": history.rounds[-1].output_accuracy if history.rounds else None,
        "target": target,
        "rounds_to_target": history.rounds_to(target),
        "seconds_to_target": history.seconds_to(target),
        "client_seconds": sum(record.slowest_client_seconds or 0 for record in history),
        "wall_seconds": sum(record.wall_seconds for record in history),
        "alpha": mean_alpha(history, groups),
        "dropped_uploads": sum(len(record.dropped) for record in history),
        "expelled": sorted({record.client for record in history.clients if record.expelled}),
    }


def mean_alpha(history: History, groups: Sequence[str] | None) -> dict[str, float]:
    """Mean α over rounds and the clients of each group (``all`` where there are no groups)."""
    gathered: dict[str, list[float]] = {}
    for record in history.clients:
        if record.alpha is not None:
            gathered.setdefault(groups[record.client] if groups else "all", []).append(record.alpha)
    return {group: fmean(values) for group, values in sorted(gathered.items())}


@dataclass(frozen=True)
class Comparison:
    """One method over several seeds. ``None`` stands for a figure that cannot be had."""

    method: str
    seeds: int
    accuracy: float | None
    accuracy_deviation: float | None
    rounds_to_target: str
    """A mean; ``N+`` where a seed did not get there in N rounds; ``×`` where one failed."""
    client_seconds: float
    alpha: Mapping[str, float]
    output_accuracy: float | None
    """Of the model that the method itself returns, where that is not the global one (TACO's z)."""
    stopped: int
    """How many seeds diverged."""
    dropped_uploads: int
    expelled: int


def compare_runs(summaries: Sequence[Mapping[str, Any]]) -> list[Comparison]:
    """One row a method, in the order in which methods appear."""
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        by_method.setdefault(summary["method"], []).append(summary)
    return [_row(method, runs) for method, runs in by_method.items()]


def _row(method: str, runs: list[Mapping[str, Any]]) -> Comparison:
    finished = [run for run in runs if run["stopped"] is None]
    accuracies = [run["final_accuracy"] for run in finished]
    outputs = [run["output_accuracy"] for run in finished if run["output_accuracy"] is not None]
    groups = {group for run in runs for group in run["alpha"]}
    return Comparison(
        method=method,
        seeds=len(runs),
        accuracy=fmean(accuracies) if accuracies else None,
        accuracy_deviation=stdev(accuracies) if len(accuracies) > 1 else None,
        rounds_to_target=_rounds_to_target(runs),
        client_seconds=fmean(run["client_seconds"] for run in runs),
        alpha={group: fmean(run["alpha"].get(group, 0.0) for run in runs) for group in sorted(groups)},
        output_accuracy=fmean(outputs) if outputs else None,
        stopped=len(runs) - len(finished),
        dropped_uploads=sum(run["dropped_uploads"] for run in runs),
        expelled=sum(len(run["expelled"]) for run in runs),
    )


def _rounds_to_target(runs: list[Mapping[str, Any]]) -> str:
    if any(run["stopped"] is not None or run["final_accuracy"] < FAILURE * run["target"] for run in runs):
        return "×"
    reached = [run["rounds_to_target"] for run in runs]
    if None in reached:
        return f"{max(run['rounds'] for run in runs)}+"
    return f"{fmean(reached):.3g}"
