"""Differences paired by seed, and the expected accuracy of each client."""

from __future__ import annotations

import numpy as np
import pytest

from fedtaco.records import PartitionRecord, RoundRecord
from fedtaco.records.summary import client_accuracies
from fedtaco.report.differences import (
    Difference,
    confidence_interval,
    correct_by_holm,
    paired_differences,
    paired_p_value,
)


def runs_of(figures, stopped=()):
    return [
        {
            "method": method,
            "seed": seed,
            "final_accuracy": accuracy,
            "stopped": "!" if (method, seed) in stopped else None,
        }
        for method, accuracies in figures.items()
        for seed, accuracy in enumerate(accuracies)
    ]


def test_differences_are_to_the_reference_seed_by_seed():
    figures = {"fedavg": [0.5, 0.7, 0.6], "taco": [0.6, 0.9, 0.75]}
    (difference,) = paired_differences(runs_of(figures), "fedavg").values()
    reach = 4.302653 * 0.05 / np.sqrt(3)
    assert difference.mean == pytest.approx(0.15)
    assert (difference.low, difference.high) == pytest.approx((0.15 - reach, 0.15 + reach), rel=1e-5)


def test_a_mean_that_rounds_to_zero_has_no_minus():
    assert str(Difference(-0.0001, -0.01, 0.0098)) == "+0.0 [−1.0, +1.0]"


def test_a_bound_that_rounds_to_zero_keeps_its_sign():
    below = Difference(-0.005, -0.0098, -0.0002)
    assert str(below) == "−0.5 [−1.0, −0.0]"
    assert str(-below) == "+0.5 [+0.0, +1.0]"
    assert str(-Difference(0.0, 0.0, 0.0)) == "+0.0 [+0.0, +0.0]"


def test_a_seed_that_diverged_in_either_method_does_not_count():
    figures = {"fedavg": [0.5, 0.7, 0.6, 0.1], "taco": [0.1, 0.9, 0.75, 0.8], "stem": [0.4, 0.1, 0.1, 0.1]}
    stopped = {("taco", 0), ("fedavg", 3), ("stem", 1), ("stem", 2), ("stem", 3)}
    differences = paired_differences(runs_of(figures, stopped), "fedavg")
    assert list(differences) == ["taco"]
    assert differences["taco"].mean == pytest.approx(0.175)


def test_a_client_expects_the_classes_by_its_own_mix_of_labels():
    record = RoundRecord(1, 0.5, 1.0, None, 1.0, class_accuracy=[1.0, None, 0.2])
    partition = PartitionRecord([], np.array([[3, 5, 1], [0, 2, 4], [0, 7, 0]]))
    assert client_accuracies(record, partition) == pytest.approx([(3 * 1.0 + 0.2) / 4, 0.2])


def test_interval_and_p_value_are_those_of_the_paired_t_test():
    from scipy.stats import ttest_rel

    ours, theirs = [0.81, 0.84, 0.79, 0.86, 0.80], [0.80, 0.81, 0.80, 0.82, 0.79]
    expected = ttest_rel(ours, theirs)
    values = [one - other for one, other in zip(ours, theirs, strict=True)]
    interval = confidence_interval(values)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert paired_p_value(values) == pytest.approx(expected.pvalue)


def test_p_value_without_any_spread():
    assert paired_p_value([0.0, 0.0]) == 1.0
    assert paired_p_value([0.25, 0.25]) == 0.0


def test_holm_by_hand():
    # sorted: 0.005 * 4, 0.01 * 3, 0.03 * 2 and 0.04 * 1, which may not be smaller than the one before it
    assert correct_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_by_holm([0.6, 0.7]) == [1.0, 1.0]
    assert correct_by_holm([]) == []
