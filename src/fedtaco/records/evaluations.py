"""How well the final model serves each client: its accuracy and loss on the client's own samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fedtaco.records.history import Metric
from fedtaco.records.schema import read_as


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


def check_evaluations(rows: Iterable[dict[str, Any]], clients: int) -> Iterator[ClientEvaluation]:
    """Yield the evaluations in the lines of ``client_evaluations.jsonl``, which must be in the order of clients.

    >>> list(check_evaluations([], clients=3))
    []
    """
    last = -1
    for row in rows:
        evaluation = read_as(ClientEvaluation, row)
        if not last < evaluation.client < clients:
            raise ValueError(f"the evaluation of client {evaluation.client} of {clients} is out of place")
        last = evaluation.client
        yield evaluation
