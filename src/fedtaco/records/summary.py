"""Summarise one run in a few figures."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from fedtaco.records.detection_rates import expulsions, freeloader_weight, summarize_detection
from fedtaco.records.evaluations import ClientEvaluation, summarize_evaluations, worst_tenth
from fedtaco.records.history import MISSED_DEADLINE, NO_ANSWER, History, RoundRecord
from fedtaco.records.partition import PartitionRecord
from fedtaco.records.swings import accuracy_range, alternates

BYTES = ("bytes_up", "bytes_down", "wire_bytes_up", "wire_bytes_down")
"""Fields of a round that are summed."""


def summarize(
    history: History,
    target: float,
    partition: PartitionRecord,
    test_counts: Sequence[int] = (),
    samples: tuple[int, int] | None = None,
    evaluations: Sequence[ClientEvaluation] = (),
) -> dict[str, Any]:
    """Return the figures of a run that ``summary.json`` contains.

    Parameters
    ----------
    history
        All records of the run.
    target
        Test accuracy to which rounds and seconds are counted.
    partition
        Which client holds which labels, and which clients are freeloaders.
    test_counts
        Number of evaluated test samples of each class; empty if unknown.
    samples
        Number of evaluated test samples, and of all; ``None`` if unknown.
    evaluations
        The final model on each client's own samples.
    """
    accuracies = [record.accuracy for record in history if record.accuracy is not None]
    chosen, last = _best_by_validation(history), history.last_evaluated
    by_client = None if last is None else client_accuracies(last, partition)
    return {
        "rounds": len(history),
        "evaluated_samples": samples and samples[0],
        "test_samples": samples and samples[1],
        "final_accuracy": history.final_accuracy,
        "majority_share": max(test_counts) / sum(test_counts) if test_counts else None,
        "predicts_one_class": last is not None and predicts_one_class(last, test_counts),
        "balanced_accuracy": None if last is None else last.balanced_accuracy,
        "metrics": {} if last is None else dict(last.metrics),
        "best_accuracy": max(accuracies, default=None),
        "average_accuracy": None,
        "last_ten_range": accuracy_range(accuracies),
        "alternates": alternates(accuracies),
        "last_five_accuracy": fmean(accuracies[-5:]) if accuracies else None,
        "output_accuracy": None if last is None else last.output_accuracy,
        "validation_accuracy": None if last is None else last.validation_accuracy,
        "chosen_round": None if chosen is None else chosen.round,
        "chosen_validation_accuracy": None if chosen is None else chosen.validation_accuracy,
        "chosen_accuracy": None if chosen is None else chosen.accuracy,
        "worst_tenth_accuracy": worst_tenth(by_client) if by_client else None,
        "client_evaluation": summarize_evaluations(evaluations),
        "training_loss": history.rounds[-1].training_loss if history.rounds else None,
        "target": target,
        "rounds_to_target": history.rounds_to(target),
        "rounds_to_target_is_upper_bound": history.is_upper_bound(target),
        "seconds_to_target": history.seconds_to(target),
        "client_seconds": history.client_seconds[-1] if history.is_timed else None,
        "wall_seconds": sum(record.wall_seconds for record in history),
        "evaluation_seconds": sum(record.evaluation_seconds or 0.0 for record in history),
        **{name: _total(history, name) for name in BYTES},
        "alpha": mean_alpha(history, partition.kinds),
        "dropped_uploads": sum(len(record.dropped) for record in history),
        "unanswered": _count_dropped(history, NO_ANSWER),
        "missed_deadlines": _count_dropped(history, MISSED_DEADLINE),
        "expelled": sorted({record.client for record in history.clients if record.expelled}),
        "detection": summarize_detection(expulsions(history), partition, freeloader_weight(history, partition)),
    }


def _total(history: History, name: str) -> int | None:
    """Return the sum of a field over all rounds; ``None`` if it is not known."""
    known = [value for value in history.column(name) if value is not None]
    return sum(known) if known else None


def _count_dropped(history: History, reason: str) -> int:
    return sum(list(record.dropped.values()).count(reason) for record in history)


def _best_by_validation(history: History) -> RoundRecord | None:
    """Return the first round with the best validation accuracy; ``None`` if nothing was held out."""
    validated = [record for record in history if record.validation_accuracy is not None]
    return max(validated, key=lambda record: record.validation_accuracy or 0.0, default=None)


def predicts_one_class(record: RoundRecord, test_counts: Sequence[int] = ()) -> bool:
    """Return whether a model predicts the same class for all test samples.

    Then one class has an accuracy of 1 and all others 0. If the accuracy of each class is not known, the accuracy must
    equal the share of the most frequent class to within one sample.

    >>> predicts_one_class(RoundRecord(1, 0.7, 1.0, None, 1.0, class_accuracy=[0.0, 1.0, None]))
    True
    >>> predicts_one_class(RoundRecord(1, 0.7, 1.0, None, 1.0), test_counts=[30, 70])
    True
    """
    if record.class_accuracy is not None:
        known = sorted(value for value in record.class_accuracy if value is not None)
        return len(known) > 1 and known[-1] == 1 and not any(known[:-1])
    if record.accuracy is None or not test_counts:
        return False
    return abs(record.accuracy * sum(test_counts) - max(test_counts)) <= 1


def client_accuracies(record: RoundRecord, partition: PartitionRecord) -> list[float] | None:
    """Return the expected accuracy of each honest client: that of each class, weighted by the client's label counts.

    ``None`` if the accuracy of each class is not known; clients without any known label are omitted, and that is all
    of them if the labels of the training samples are not known.
    """
    if record.class_accuracy is None:
        return None
    classes = partition.label_counts.shape[1]
    known = [(label, value) for label, value in enumerate(record.class_accuracy[:classes]) if value is not None]
    columns, values = [label for label, _ in known], np.array([value for _, value in known])
    honest = [client for client in range(len(partition.label_counts)) if client not in partition.freeloaders]
    counts = partition.label_counts[np.ix_(honest, columns)]
    return [float(own @ values / own.sum()) for own in counts if own.sum() > 0]


def mean_alpha(history: History, kinds: Sequence[str]) -> dict[str, float]:
    """Return the mean α of each kind of client, over its clients and all rounds."""
    gathered: dict[str, list[float]] = {}
    for record in history.clients:
        alpha = record.quantities["alpha"]
        if alpha is not None:
            gathered.setdefault(kinds[record.client], []).append(alpha)
    return {kind: fmean(values) for kind, values in sorted(gathered.items())}
