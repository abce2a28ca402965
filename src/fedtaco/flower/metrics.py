"""Metrics that nodes report: checked, and averaged exactly.

A value is ignored only if no honest node can report it. A false value that an honest node could report counts like any
other, and with the weight that its node states; nothing that the server does depends on these means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median_low

from flwr.app import MetricRecord

from fedtaco.flower.wire import EXAMPLES
from fedtaco.printable import printable, quoted

MAX_METRIC = 1e300
"""Metrics above this value are invalid, as NaN is."""
MAX_EXAMPLES = 1e12
"""No node has more samples."""
RANGES = {"accuracy": (0.0, 1.0), EXAMPLES: (0.0, MAX_EXAMPLES)}
"""Lowest and highest value that an honest node can report of some metrics."""
MAX_COUNT_RATIO = 100.0
"""In the model, a node's number of samples counts at most this many times the median of all nodes."""
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


def read_count(metrics: ReportedMetrics, key: str | None) -> float | None:
    """Return how much a reply counts: its metric ``key``, or 1 if there is no key; ``None`` if that is not valid.

    >>> read_count({"num-examples": 60}, "num-examples"), read_count({"num-examples": -1}, "num-examples")
    (60.0, None)
    """
    count = 1.0 if key is None else read_metric(key, metrics.get(key))
    return count if count is not None and count >= 0 else None


def cap_counts(counts: Sequence[float]) -> list[float]:
    """Return counts of samples, of which none is more than a hundred times the median of the positive ones.

    >>> cap_counts([10, 20, 30, 1e12, 0])
    [10.0, 20.0, 30.0, 2000.0, 0.0]
    """
    positive = [count for count in counts if count > 0]
    limit = MAX_COUNT_RATIO * median_low(positive) if positive else 0.0
    return [float(min(count, limit)) for count in counts]


def mean_metrics(reported: Sequence[ReportedMetrics], key: str | None) -> tuple[MetricRecord, dict[int, list[str]]]:
    """Return the weighted means of the metrics that more than half of the replies contain.

    Values that no honest node can report are ignored. The mean is NaN if at least three replies contain the metric and
    all of their values are invalid, as when the model has diverged.

    Parameters
    ----------
    reported
        The metrics of each reply.
    key
        The metric that is the weight of a reply. Without a key, and if at most half of the replies state a valid
        weight, all replies count alike.

    Returns
    -------
    tuple
        The means, and what is wrong with the metrics of some replies, by position.
    """
    counts, problems = _read_counts(reported, key)
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for metrics in reported for name in metrics):
        stated = {place: metrics[name] for place, metrics in enumerate(reported) if name in metrics}
        if 2 * len(stated) <= len(reported):
            continue
        values = {place: number for place, value in stated.items() if (number := read_metric(name, value)) is not None}
        for place in () if name == key else sorted(set(stated) - set(values)):
            problems.setdefault(place, []).append(f"{printable(name)} is {quoted(stated[place])}")
        total = math.fsum(counts[place] for place in values)
        if total > 0:
            means[name] = math.fsum(counts[place] / total * value for place, value in values.items())
        elif not values and len(stated) >= MIN_REPLIES:
            means[name] = math.nan
    return MetricRecord({**means}), problems


def _read_counts(reported: Sequence[ReportedMetrics], key: str | None) -> tuple[list[float], dict[int, list[str]]]:
    """Return how much each reply counts, 0 if that is not valid, and which replies state no valid number."""
    counts = [read_count(metrics, key) for metrics in reported]
    invalid = [place for place, count in enumerate(counts) if count is None]
    if 2 * len(invalid) >= len(reported):
        return [1.0] * len(reported), {}
    problems = {place: [f"{printable(key)} is {quoted(reported[place].get(str(key)))}"] for place in invalid}
    return [count or 0.0 for count in counts], problems
