"""Runs that swing: their test accuracy goes up and down in the last rounds instead of settling."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from fedtaco.records.history import RoundRecord

WINDOW = 10
"""Number of test accuracies, the last ones of a run, by which it is judged."""
RATIO = 3
"""A run swings if their range exceeds this many times that of FedAvg on the same seed."""
LIMIT, ALTERNATING = 0.03, 4
"""Without FedAvg, it swings if their range exceeds the limit and at least four changes have alternating signs."""


def accuracy_range(accuracies: Sequence[float]) -> float | None:
    """Return the range of the last ten accuracies; ``None`` if there are fewer.

    >>> round(accuracy_range([0.1, 0.7, *8 * [0.8], 0.75]), 3)
    0.1
    """
    last = accuracies[-WINDOW:]
    return max(last) - min(last) if len(last) == WINDOW else None


def alternates(accuracies: Sequence[float]) -> bool:
    """Return whether the last ten accuracies go up and down by more than three percentage points.

    Four of the nine changes, at least, must have alternating signs; rounds without a change are skipped.

    >>> alternates([0.8, 0.7] * 5), alternates([0.1 * step for step in range(10)])
    (True, False)
    """
    spread = accuracy_range(accuracies)
    if spread is None or not exceeds(spread, LIMIT):
        return False
    signs = [after > before for before, after in pairwise(accuracies[-WINDOW:]) if after != before]
    return 1 + sum(first != second for first, second in pairwise(signs)) >= ALTERNATING


def exceeds(spread: float, limit: float) -> bool:
    """Return whether a range is larger than a limit, apart from rounding.

    >>> exceeds(0.8 - 0.7, 0.1), exceeds(0.8 - 0.6999, 0.1)
    (False, True)
    """
    return round(spread - limit, 9) > 0


def first_swing(rounds: Iterable[RoundRecord]) -> int | None:
    """Return the first round that is part of a swing; ``None`` if there is none.

    It is the first round in ten whose accuracies alternate (:func:`alternates`) that is more than three percentage
    points below an earlier one of these.

    >>> records = [RoundRecord(number, 0.8 - 0.1 * (number % 2), 0.0, None, 1.0) for number in range(1, 11)]
    >>> first_swing(records)
    3
    """
    tested = [(record.round, record.accuracy) for record in rounds if record.accuracy is not None]
    for end in range(WINDOW, len(tested) + 1):
        window = tested[end - WINDOW : end]
        accuracies = [accuracy for _, accuracy in window]
        if not alternates(accuracies):
            continue
        best = accumulate(accuracies, max)
        for (number, accuracy), highest in zip(window, best, strict=True):
            if exceeds(highest - accuracy, LIMIT):
                return number
    return None


def swings(run: Mapping[str, Any], fedavg: Mapping[str, Any] | None) -> bool:
    """Return whether a run swings, given its summary and that of FedAvg on the same seed, if there is one.

    A run of FedAvg is judged by itself, and so is any other run if FedAvg diverged.
    """
    fedavg_range: float | None = None
    if fedavg is not None and not fedavg["stopped"] and run["method"] != "fedavg":
        fedavg_range = fedavg["last_ten_range"]
    return range_swings(run["last_ten_range"], bool(run["alternates"]), fedavg_range)


def range_swings(last_range: float | None, is_alternating: bool, fedavg_range: float | None) -> bool:
    """Return whether a run swings.

    Parameters
    ----------
    last_range
        The range of its last ten accuracies; ``None`` if there are fewer, and then it does not swing.
    is_alternating
        Whether these accuracies alternate (:func:`alternates`), which decides if ``fedavg_range`` is ``None``.
    fedavg_range
        The range of FedAvg on the same seed.

    >>> range_swings(0.04, False, None), range_swings(0.04, False, 0.01)
    (False, True)
    """
    if last_range is None:
        return False
    return is_alternating if fedavg_range is None else exceeds(last_range, RATIO * fedavg_range)
