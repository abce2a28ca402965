"""Differences over paired seeds, and what each client can expect."""

from __future__ import annotations

import numpy as np
import pytest

from fedtaco.records import RoundRecord, Split
from fedtaco.report import paired_differences
from fedtaco.report.summary import client_accuracies


def test_differences_are_to_the_first_method_seed_by_seed():
    figures = {"fedavg": [0.5, 0.7, 0.6], "taco": [0.6, 0.9, 0.75]}
    runs = [
        {"method": method, "seed": seed, "final_accuracy": accuracy}
        for method, accuracies in figures.items()
        for seed, accuracy in enumerate(accuracies)
    ]
    (difference,) = paired_differences(runs).values()
    reach = 4.302653 * 0.05 / np.sqrt(3)
    assert difference.mean == pytest.approx(0.15)
    assert (difference.low, difference.high) == pytest.approx((0.15 - reach, 0.15 + reach), rel=1e-5)


def test_a_client_expects_the_classes_by_its_own_mix_of_labels():
    record = RoundRecord(1, 0.5, 1.0, None, 1.0, class_accuracy=[1.0, None, 0.2])
    split = Split([], np.array([[3, 5, 1], [0, 2, 4], [0, 7, 0]]))
    assert client_accuracies(record, split) == pytest.approx([(3 * 1.0 + 0.2) / 4, 0.2])
