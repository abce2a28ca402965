"""How well a detector separated freeloaders from honest clients."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from fedtaco.records.history import History
from fedtaco.records.partition import PartitionRecord

KAPPAS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LIMITS = {"T/10": 10, "T/5": 5, "T/2": 2}
"""The paper's candidates for κ, and for λ: each name with the number by which T is divided."""


@dataclass(frozen=True)
class Rates:
    """Fractions of the freeloaders and of the honest clients that were expelled."""

    true_positive: float
    false_positive: float

    @classmethod
    def of(cls, expelled: Collection[int], partition: PartitionRecord) -> Rates:
        """Return the rates of a set of expelled clients.

        >>> Rates.of([1, 2], PartitionRecord([], np.zeros((4, 2), dtype=np.int64), freeloaders=[1]))
        Rates(true_positive=1.0, false_positive=0.3333333333333333)
        """
        freeloaders = set(partition.freeloaders)
        caught, honest = len(freeloaders & set(expelled)), len(partition.label_counts) - len(freeloaders)
        honest_expelled = len(set(expelled)) - caught
        return cls(caught / len(freeloaders) if freeloaders else 0.0, honest_expelled / honest if honest else 0.0)


def expulsions(history: History) -> dict[int, int]:
    """Return the round in which each expelled client was expelled."""
    return {record.client: record.round for record in reversed(history.clients) if record.expelled}


def summarize_detection(
    expelled: Mapping[int, int], partition: PartitionRecord, weight: float | None
) -> dict[str, Any] | None:
    """Return the entries of a summary about freeloaders and expulsions; ``None`` if there were neither.

    Parameters
    ----------
    expelled
        The round in which each expelled client was expelled.
    partition
        Tells which clients are freeloaders.
    weight
        Aggregation weight of the freeloaders, see :func:`freeloader_weight`.
    """
    if not partition.freeloaders and not expelled:
        return None
    rates = Rates.of(expelled, partition)
    caught = [number for client, number in expelled.items() if client in partition.freeloaders]
    return {
        "freeloaders": len(partition.freeloaders),
        "caught": len(caught),
        "honest_expelled": len(expelled) - len(caught),
        "true_positive_rate": rates.true_positive if partition.freeloaders else None,
        "false_positive_rate": rates.false_positive,
        "mean_round_caught": fmean(caught) if caught else None,
        "freeloader_weight": weight,
    }


def freeloader_weight(history: History, partition: PartitionRecord) -> float | None:
    """Return the total aggregation weight of all freeloaders, averaged over rounds."""
    if not partition.freeloaders or not history.rounds:
        return None
    freeloaders = set(partition.freeloaders)
    weights = [record.quantities["weight"] or 0.0 for record in history.clients if record.client in freeloaders]
    return sum(weights) / len(history)


def threshold_rates(history: History, partition: PartitionRecord) -> Mapping[tuple[float, str], Rates]:
    """Return the rates that the paper's rule would have at each κ and λ, given the α of a run without expulsions."""
    rates = {}
    for kappa in KAPPAS:
        strikes = [0] * len(partition.label_counts)
        for record in history.clients:
            alpha = record.quantities["alpha"]
            strikes[record.client] += alpha is not None and alpha >= kappa
        for name, divisor in LIMITS.items():
            limit = math.ceil(len(history) / divisor)
            expelled = [client for client, count in enumerate(strikes) if count >= limit]
            rates[kappa, name] = Rates.of(expelled, partition)
    return rates


def auroc(freeloaders: Sequence[float], honest: Sequence[float]) -> float:
    """Return the area under the ROC curve of a score that should be higher for freeloaders.

    It is the fraction of pairs in which the freeloader's score is above the honest client's; a tie counts half.

    >>> auroc([0.9, 0.4], [0.1, 0.4])
    0.875
    """
    ranked = np.sort(honest)
    below, not_above = np.searchsorted(ranked, freeloaders, "left"), np.searchsorted(ranked, freeloaders, "right")
    return float(np.mean(below + not_above) / (2 * len(ranked)))
