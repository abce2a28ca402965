"""Summarise all runs of each method in a few figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fedtaco.records.formatting import format_count
from fedtaco.records.swings import swings

MEANS = (
    *("balanced_accuracy", "worst_tenth_accuracy", "output_accuracy", "best_accuracy", "average_accuracy"),
    *("client_seconds", "bytes_up", "bytes_down"),
)
"""Entries of summaries of which the mean over the finished runs is taken."""
SUMS = ("dropped_uploads", "unanswered", "missed_deadlines")
"""Entries of summaries that are summed over all runs."""
DETECTION_COUNTS = ("freeloaders", "caught", "honest_expelled")
FAILURE_FRACTION = 0.9
"""A run whose final accuracy is below this fraction of the target is marked."""
UNBALANCED = 0.01
"""Difference between accuracy and balanced accuracy from which both are shown."""


@dataclass(frozen=True)
class MethodSummary:
    """One method over several seeds; ``None`` stands for a figure that is not available."""

    method: str
    seeds: int
    accuracy: float | None
    accuracy_deviation: float | None
    rounds_to_target: float | None
    """Mean over seeds; ``None`` if a seed diverged or did not reach the target."""
    rounds: int | None
    """Number of rounds of the longest run; ``None`` if all runs are unfinished."""
    client_seconds: float | None
    """Compute time of the slowest clients, mean over seeds; ``None`` if not measured, as with ``batched``."""
    worst_tenth_accuracy: float | None
    alpha: Mapping[str, float]
    output_accuracy: float | None
    """Accuracy of the model that the method returns, if that is not the global model (TACO's z)."""
    stopped: int
    """Number of seeds that diverged; they are not part of the means of accuracy and seconds."""
    ended_low: int
    """Number of other seeds that ended below nine tenths of the target."""
    one_class: int
    """Number of other seeds whose model predicts the same class for all test samples."""
    dropped_uploads: int
    """Number of uploads that were not used, for whatever reason."""
    freeloaders: int
    caught: int
    """Number of freeloaders that were expelled."""
    honest_expelled: int
    """Number of honest clients that were expelled."""
    balanced_accuracy: float | None = None
    """Mean of the accuracies of the classes."""
    majority_share: float | None = None
    """Share of the most frequent class in the test set: the accuracy of always predicting it."""
    samples: tuple[int, int] | None = None
    """Number of test samples that were evaluated, and of all; ``None`` if all were evaluated."""
    own_accuracy: float | None = None
    """Accuracy of the final model on clients' own held-out samples, mean over clients."""
    own_worst_tenth: float | None = None
    tuned_accuracy: float | None = None
    """The same after fine-tuning for each client."""
    tuned_worst_tenth: float | None = None
    has_personal_layers: bool = False
    """Whether every client has a model of its own, over which accuracies are means."""
    bytes_up: float | None = None
    """Bytes that all clients sent in a run, mean over seeds."""
    bytes_down: float | None = None
    """Bytes that they received."""
    is_compressed: bool = False
    """Whether the uploads were compressed."""
    unanswered: int = 0
    """Number of uploads that were not used because the client did not answer."""
    missed_deadlines: int = 0
    """Number of uploads that were not used because the client missed the deadline."""
    is_upper_bound: bool = False
    """Whether a seed may have reached the target before, in a round without evaluation."""
    ended_early: int = 0
    """Number of seeds that a callback ended before the last round."""
    swinging: int = 0
    """Number of finished seeds whose accuracy swings in the last rounds (:func:`~fedtaco.records.swings.swings`)."""
    best_accuracy: float | None = None
    """Accuracy of the best round, mean over seeds."""
    average_accuracy: float | None = None
    """Accuracy of the average of the last models, mean over seeds."""

    @property
    def rounds_mark(self) -> str:
        """Rounds to the target, as tables show them.

        A mean, after ``≤`` if it is an upper bound; ``N+`` if a seed did not reach the target in N rounds, followed by
        ``↓`` if one ended below nine tenths of it; ``×`` if a seed diverged, and ``–`` without a test set.
        """
        if self.stopped:
            return "×"
        low = "↓" if self.ended_low else ""
        if self.rounds_to_target is not None:
            return f"{'≤ ' if self.is_upper_bound else ''}{format_count(self.rounds_to_target)}{low}"
        return "–" if self.accuracy is None or self.rounds is None else f"{self.rounds}+{low}"

    @property
    def paper_mark(self) -> str:
        """Rounds to the target, as the paper's tables show them: ``×`` also if a seed ended far below the target."""
        return "×" if self.ended_low else self.rounds_mark

    @property
    def reached_target(self) -> bool:
        """Whether every seed reached the target, and none ended far below it."""
        return self.rounds_to_target is not None and not self.ended_low


def is_unbalanced(row: MethodSummary) -> bool:
    """Return whether accuracy and balanced accuracy differ by a percentage point or more."""
    accuracy, balanced = row.accuracy, row.balanced_accuracy
    return accuracy is not None and balanced is not None and abs(accuracy - balanced) >= UNBALANCED


def shows_traffic(rows: Sequence[MethodSummary]) -> bool:
    """Return whether tables show bytes: if methods differ in them, or uploads were compressed."""
    sizes = {(row.bytes_up, row.bytes_down) for row in rows if row.bytes_up}
    return len(sizes) > 1 or (bool(sizes) and any(row.is_compressed for row in rows))


def summarize_methods(
    summaries: Sequence[Mapping[str, Any]], fedavg: Sequence[Mapping[str, Any]] | None = None
) -> list[MethodSummary]:
    """Return one summary per method, in the order in which methods appear.

    Parameters
    ----------
    summaries
        Summaries of runs.
    fedavg
        Runs of FedAvg, with which those of the same seed are compared to find out whether they swing; those in
        ``summaries`` by default.
    """
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        by_method.setdefault(summary["method"], []).append(summary)
    usual = {run["seed"]: run for run in (by_method.get("fedavg", []) if fedavg is None else fedavg)}
    return [_summarize_method(method, runs, usual) for method, runs in by_method.items()]


def _summarize_method(
    method: str, runs: list[Mapping[str, Any]], fedavg: Mapping[int, Mapping[str, Any]]
) -> MethodSummary:
    finished = [run for run in runs if run["stopped"] is None]
    accuracies = [run["final_accuracy"] for run in finished if run["final_accuracy"] is not None]
    groups = {group for run in runs for group in run["alpha"]}
    figures: dict[str, Any] = {name: _mean([run[name] for run in finished]) for name in MEANS}
    figures |= {name: sum(run[name] for run in runs) for name in SUMS}
    figures |= {name: sum((run.get("detection") or {}).get(name, 0) for run in runs) for name in DETECTION_COUNTS}
    return MethodSummary(
        method=method,
        seeds=len(runs),
        accuracy=fmean(accuracies) if accuracies else None,
        accuracy_deviation=stdev(accuracies) if len(accuracies) > 1 else None,
        majority_share=_mean([run["majority_share"] for run in runs]),
        samples=next((counts for run in runs if (counts := _subsample(run)) is not None), None),
        own_accuracy=_own_accuracy(finished, "accuracy", "mean"),
        own_worst_tenth=_own_accuracy(finished, "accuracy", "worst_tenth"),
        tuned_accuracy=_own_accuracy(finished, "tuned_accuracy", "mean"),
        tuned_worst_tenth=_own_accuracy(finished, "tuned_accuracy", "worst_tenth"),
        rounds_to_target=_mean_rounds(runs),
        has_personal_layers=any(run.get("personal") is not None for run in runs),
        is_upper_bound=any(run["rounds_to_target_is_upper_bound"] for run in runs),
        rounds=max(run["rounds"] for run in runs),
        alpha={group: fmean(run["alpha"][group] for run in runs if group in run["alpha"]) for group in sorted(groups)},
        is_compressed=any(run.get("compress", "none") not in (None, "none") for run in runs),
        stopped=len(runs) - len(finished),
        ended_low=sum(map(_ended_low, finished)),
        one_class=sum(run.get("predicts_one_class", False) for run in finished),
        ended_early=sum(run.get("ended_early") is not None for run in finished),
        swinging=sum(swings(run, fedavg.get(run["seed"])) for run in finished),
        **figures,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _subsample(run: Mapping[str, Any]) -> tuple[int, int] | None:
    evaluated, test_samples = run["evaluated_samples"], run["test_samples"]
    return None if evaluated is None or evaluated == test_samples else (evaluated, test_samples)


def _own_accuracy(runs: Sequence[Mapping[str, Any]], model: str, figure: str) -> float | None:
    """Return a figure of the evaluations on clients' own samples, mean over runs."""
    return _mean([((run["client_evaluation"] or {}).get(model) or {}).get(figure) for run in runs])


def _mean_rounds(runs: Sequence[Mapping[str, Any]]) -> float | None:
    rounds = [None if run["stopped"] else run["rounds_to_target"] for run in runs]
    return None if None in rounds else _mean(rounds)


def _ended_low(run: Mapping[str, Any]) -> bool:
    return run["final_accuracy"] is not None and run["final_accuracy"] < FAILURE_FRACTION * run["target"]
