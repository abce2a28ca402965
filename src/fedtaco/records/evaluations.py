"""How well the final model serves each client: its accuracy and loss on the client's own samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedtaco.records.history import Metric


@dataclass(frozen=True)
class ClientEvaluation:
    """The final global model on one client's own samples, which it was not trained on.

    The ``tuned`` figures are those of a copy that was fine-tuned on the client's training samples; ``None`` without
    fine-tuning, or if it diverged.
    """

    client: int
    samples: int
    """Number of samples that the model was evaluated on."""
    accuracy: Metric | None
    loss: float | None
    tuned_accuracy: Metric | None = None
    tuned_loss: float | None = None


def summarize_evaluations(evaluations: Sequence[ClientEvaluation]) -> dict[str, Any] | None:
    """Return the entry of ``summary.json`` on evaluations by client; ``None`` if there are none.

    It contains the mean and the extremes of the clients' accuracies, and the mean of their losses, each before and
    after fine-tuning.
    """
    if not evaluations:
        return None
    losses = {
        name: [value for one in evaluations if (value := getattr(one, name)) is not None]
        for name in ("loss", "tuned_loss")
    }
    return {
        "clients": len(evaluations),
        "accuracy": _spread({one.client: one.accuracy for one in evaluations}),
        "tuned_accuracy": _spread({one.client: one.tuned_accuracy for one in evaluations}),
        **{name: fmean(values) if values else None for name, values in losses.items()},
    }


def _spread(accuracies: Mapping[int, float | None]) -> dict[str, float] | None:
    """Return mean and extremes of accuracies by client; of clients that are equally good, the first is named."""
    known = {client: accuracy for client, accuracy in accuracies.items() if accuracy is not None}
    if not known:
        return None
    best, worst = (choose(known, key=known.__getitem__) for choose in (max, min))
    return {
        "mean": fmean(known.values()),
        "worst_tenth": worst_tenth(list(known.values())),
        "best": known[best],
        "best_client": best,
        "worst": known[worst],
        "worst_client": worst,
    }


def worst_tenth(accuracies: Sequence[float]) -> float:
    """Return the mean over the tenth of the clients (at least one) with the lowest accuracy.

    >>> worst_tenth([0.9, 0.1, 0.5])
    0.1
    """
    return fmean(sorted(accuracies)[: max(1, len(accuracies) // 10)])
