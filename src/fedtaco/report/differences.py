"""Compare methods seed by seed, since runs with the same seed have the same partition, initial weights and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A mean difference with its confidence interval, as fractions.

    ``str`` formats them in percentage points. Bounds keep their sign, which tells whether the interval includes 0.

    Examples
    --------
    >>> print(Difference(-0.005, -0.0098, -0.0002))
    −0.5 [−1.0, −0.0]
    """

    mean: float
    low: float
    high: float

    def __neg__(self) -> Difference:
        return Difference(0 - self.mean, 0 - self.high, 0 - self.low)

    @property
    def includes_zero(self) -> bool:
        """Whether the confidence interval includes 0."""
        return self.low <= 0 <= self.high

    def __str__(self) -> str:
        text = f"{100 * self.mean:+z.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"
        return text.replace("-", "−")


def paired_differences(summaries: Sequence[Mapping[str, Any]], reference: str) -> dict[str, Difference]:
    """Compare the final accuracy of each method with that of a reference method, seed by seed.

    Parameters
    ----------
    summaries
        Summaries of finished runs; those of diverged runs are ignored.
    reference
        Method whose accuracy is subtracted.

    Returns
    -------
    dict
        The difference of each method that has at least two seeds in common with the reference.
    """
    by_method = accuracies_by_seed(summaries)
    base = by_method.pop(reference, {})
    differences = {}
    for method, accuracies in by_method.items():
        common = sorted(set(accuracies) & set(base))
        if len(common) > 1:
            differences[method] = confidence_interval([accuracies[seed] - base[seed] for seed in common])
    return differences


def accuracies_by_seed(summaries: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Return the final accuracy of each method and seed, without runs that diverged or have no test set."""
    by_method: dict[str, dict[int, float]] = {}
    for run in summaries:
        accuracies = by_method.setdefault(run["method"], {})
        if run["stopped"] is None and run["final_accuracy"] is not None:
            accuracies[run["seed"]] = run["final_accuracy"]
    return by_method


def confidence_interval(values: Sequence[float]) -> Difference:
    """Return the mean of at least two values with Student's confidence interval.

    >>> print(confidence_interval([0.01, 0.02, 0.03]))
    +2.0 [−0.5, +4.5]
    """
    from scipy.stats import t

    mean = fmean(values)
    half_width = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Difference(mean, mean - half_width, mean + half_width)


def paired_p_value(values: Sequence[float]) -> float:
    """Return the two-sided p-value of Student's paired t-test for at least two differences.

    >>> round(paired_p_value([0.01, 0.02, 0.03]), 4)
    0.0742
    """
    from scipy.stats import t

    mean, error = fmean(values), stdev(values) / sqrt(len(values))
    if error == 0:
        return 0.0 if mean else 1.0
    return 2 * float(t.sf(abs(mean) / error, len(values) - 1))


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number by Holm's method, in the same order.

    The smallest of n is multiplied by n, the next by n - 1 and so on; none becomes smaller than one before it, or
    larger than 1.

    >>> correct_by_holm([0.04, 0.01, 0.03])
    [0.06, 0.03, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
