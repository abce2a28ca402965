"""Metrics that nodes report: checked, and averaged without values that are invalid or far from the others.

If replies are weighted by a number that the nodes state themselves, a node with a large number has a large weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_low

from flwr.app import MetricRecord

from fedtaco.flower.wire import TRAINING_LOSS
from fedtaco.printable import printable, quoted

MAX_METRIC = 1e300
"""Metrics above this value are invalid, as NaN is."""
RANGES = {"accuracy": (0.0, 1.0), TRAINING_LOSS: (-1e9, 1e9)}
"""Lowest and highest valid value of some metrics."""
VARIED = frozenset({TRAINING_LOSS})
"""Metrics that are not clipped, because they differ by orders of magnitude between honest nodes."""
MAX_COUNT_RATIO = 100.0
"""A node's number of samples counts at most this many times the median of all nodes."""
MAX_DEVIATION = 10.0
"""A metric is clipped to this many median absolute deviations around the median, or medians if that is wider."""
MIN_REPLIES = 3
"""Number of replies that together may state that a metric cannot be computed."""

ReportedMetrics = Mapping[str, object]


def read_number(value: object) -> float | None:
    """Return a reported value as a number; ``None`` if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -MAX_METRIC < value < MAX_METRIC else None


def read_metric(name: str, value: object) -> float | None:
    """Return a reported metric as a number; ``None`` if it is not a finite number in its range.

    >>> read_metric("accuracy", 0.5), read_metric("accuracy", 1.5), read_metric("loss", 1.5)
    (0.5, None, 1.5)
    """
    number = read_number(value)
    low, high = RANGES.get(name, (-math.inf, math.inf))
    return number if number is not None and low <= number <= high else None


def cap_counts(counts: Sequence[float]) -> list[float]:
    """Return counts of samples, of which none is more than a hundred times the median of the positive ones.

    >>> cap_counts([10, 20, 30, 1e12, 0])
    [10.0, 20.0, 30.0, 2000.0, 0.0]
    """
    positive = [count for count in counts if count > 0]
    limit = MAX_COUNT_RATIO * median_low(positive) if positive else 0.0
    return [float(min(count, limit)) for count in counts]


def metric_counts(reported: Sequence[ReportedMetrics], key: str | None) -> list[float]:
    """Return how much each reply counts; one without the metric ``key`` counts 0, unless all lack it."""
    counts = [1.0 if key is None else max(read_number(metrics.get(key)) or 0.0, 0.0) for metrics in reported]
    return cap_counts(counts) if any(counts) else [1.0] * len(reported)


def mean_metrics(
    reported: Sequence[ReportedMetrics], counts: Sequence[float]
) -> tuple[MetricRecord, dict[int, list[str]]]:
    """Return the weighted means of the metrics that more than half of the replies contain.

    Invalid values are ignored, and values far from the others are clipped, except those of metrics in :data:`VARIED`.
    The mean is NaN if at least three replies contain the metric and all of their values are invalid, as when the model
    has diverged.

    Parameters
    ----------
    reported
        The metrics of each reply.
    counts
        How much each reply counts.

    Returns
    -------
    tuple
        The means, and what is wrong with the metrics of some replies, by position.
    """
    names = dict.fromkeys(name for metrics in reported for name in metrics)
    problems: dict[int, list[str]] = {}
    means: dict[str, float] = {}
    for name in names:
        stated = {place: metrics[name] for place, metrics in enumerate(reported) if name in metrics}
        if 2 * len(stated) <= len(reported):
            continue
        values = {place: number for place, value in stated.items() if (number := read_metric(name, value)) is not None}
        for place in set(stated) - set(values):
            problems.setdefault(place, []).append(f"{printable(name)} is {quoted(stated[place])}")
        if not values:
            means |= {name: math.nan} if len(stated) >= MIN_REPLIES else {}
            continue
        low, high = (-math.inf, math.inf) if name in VARIED else _usual_range(list(values.values()))
        for place, value in values.items():
            if not low <= value <= high:
                problems.setdefault(place, []).append(f"{printable(name)} is {value:.3g}, far from the others")
        total = sum(counts[place] for place in values)
        if total > 0:
            clipped = {place: min(max(value, low), high) for place, value in values.items()}
            means[name] = sum(counts[place] / total * value for place, value in clipped.items())
    return MetricRecord({**means}), problems


def _usual_range(values: list[float]) -> tuple[float, float]:
    """Return the range to which values are clipped; it is not negative if the median is positive."""
    middle = median_low(values)
    deviation = 1.4826 * median_low([abs(value - middle) for value in values])
    width = MAX_DEVIATION * max(deviation, abs(middle))
    return 0.0 if middle > 0 else middle - width, middle + width
