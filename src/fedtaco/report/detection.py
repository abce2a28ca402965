"""How well freeloaders were told from honest clients."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from fedtaco.records import History, Split

KAPPAS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
LIMITS = {"T/10": 10, "T/5": 5, "T/2": 2}
"""The paper's candidates for κ, and for λ as a part of the rounds."""


@dataclass(frozen=True)
class Rates:
    """The part of the freeloaders, and of the honest clients, that were expelled."""

    true_positive: float
    false_positive: float

    @classmethod
    def of(cls, expelled: Collection[int], split: Split) -> Rates:
        """
        >>> import numpy as np
        >>> Rates.of([1, 2], Split([], np.zeros((4, 2)), freeloaders=[1]))
        Rates(true_positive=1.0, false_positive=0.3333333333333333)
        """
        riding = set(split.freeloaders)
        caught, honest = len(riding & set(expelled)), len(split.label_counts) - len(riding)
        wronged = len(set(expelled)) - caught
        return cls(caught / len(riding) if riding else 0.0, wronged / honest if honest else 0.0)


def expulsions(history: History) -> dict[int, int]:
    """The round in which each expelled client was."""
    return {record.client: record.round for record in reversed(history.clients) if record.expelled}


def detection(expelled: Mapping[int, int], split: Split, weight: float | None) -> dict[str, Any] | None:
    """What a summary holds of freeloaders and expulsions; ``None`` where there were neither."""
    if not split.freeloaders and not expelled:
        return None
    rates = Rates.of(expelled, split)
    caught = [number for client, number in expelled.items() if client in split.freeloaders]
    return {
        "freeloaders": len(split.freeloaders),
        "caught": len(caught),
        "wronged": len(expelled) - len(caught),
        "true_positive_rate": rates.true_positive if split.freeloaders else None,
        "false_positive_rate": rates.false_positive,
        "mean_round_caught": fmean(caught) if caught else None,
        "freeloader_weight": weight,
    }


def freeloader_weight(history: History, split: Split) -> float | None:
    """The part of the aggregate that was freeloaders', in the mean over rounds."""
    if not split.freeloaders or not history.rounds:
        return None
    riding = set(split.freeloaders)
    return sum(record.weight for record in history.clients if record.client in riding) / len(history)


def threshold_rates(history: History, split: Split) -> Mapping[tuple[float, str], Rates]:
    """The paper's rule with each κ and λ, scored by the α of a run in which nobody was expelled."""
    scored = {}
    for kappa in KAPPAS:
        strikes = [0] * len(split.label_counts)
        for record in history.clients:
            strikes[record.client] += record.alpha is not None and record.alpha >= kappa
        for name, part in LIMITS.items():
            limit = math.ceil(len(history) / part)
            out = [client for client, count in enumerate(strikes) if count >= limit]
            scored[kappa, name] = Rates.of(out, split)
    return scored


def auroc(freeloaders: Sequence[float], honest: Sequence[float]) -> float:
    """How often a freeloader's score is above an honest client's, a tie counting half.

    >>> auroc([0.9, 0.4], [0.1, 0.4])
    0.875
    """
    ranked = np.sort(honest)
    below, not_above = np.searchsorted(ranked, freeloaders, "left"), np.searchsorted(ranked, freeloaders, "right")
    return float(np.mean(below + not_above) / (2 * len(ranked)))
