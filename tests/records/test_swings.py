"""Which runs swing."""

from __future__ import annotations

import pytest

from fedtaco.records import RoundRecord
from fedtaco.records.swings import accuracy_range, alternates, first_swing, swings

UP_AND_DOWN = [0.80, 0.76] * 5


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        (UP_AND_DOWN, True),
        ([0.1, 0.2, *UP_AND_DOWN], True),
        ([0.80, 0.771] * 5, False),  # a range of 2.9 points
        ([0.1 * number for number in range(10)], False),  # a rise
        ([0.1 * (number // 2) for number in range(10)], False),  # a rise in steps
        ([0.8, 0.8, 0.7, 0.7, 0.8, 0.8, 0.7, 0.7, 0.8, 0.8], True),  # down, up, down, up
        ([0.8, 0.8, 0.7, 0.7, 0.7, 0.8, 0.8, 0.7, 0.7, 0.7], False),  # down, up, down
        ([0.80, 0.76] * 4, False),  # eight rounds
        ([*UP_AND_DOWN, *10 * [0.8]], False),  # settled in the end
    ],
)
def test_an_oscillation_has_four_alternating_changes_and_a_range_of_three_points(accuracies, expected):
    assert alternates(accuracies) is expected


def test_the_range_is_that_of_ten_rounds():
    assert accuracy_range([0.1, *9 * [0.8], 0.9]) == pytest.approx(0.1)
    assert accuracy_range(9 * [0.8]) is None


def run(spread, alternating=False, **changes):
    return {"method": "taco", "stopped": None, "last_ten_range": spread, "alternates": alternating, **changes}


def test_with_fedavg_only_its_range_matters():
    assert swings(run(0.031), run(0.01))
    assert not swings(run(0.029, alternating=True), run(0.01))
    assert not swings(run(0.3, alternating=True), run(0.8 - 0.7))  # three times, apart from rounding


def test_without_fedavg_the_run_must_alternate():
    assert swings(run(0.05, alternating=True), None)
    assert swings(run(0.05, alternating=True), run(None))
    assert not swings(run(0.5), None)
    assert not swings(run(None), run(0.01))


def test_fedavg_is_judged_by_itself_and_one_that_diverged_does_not_count():
    fedavg = run(0.1, alternating=True, method="fedavg")
    assert swings(fedavg, fedavg)
    assert swings(run(0.1, alternating=True), run(0.3, stopped="The loss is not finite."))


def records(accuracies):
    return [RoundRecord(number, accuracy, None, None, 1.0) for number, accuracy in enumerate(accuracies, 1)]


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([0.1, 0.2, *UP_AND_DOWN], 4),
        ([*6 * [0.8], *UP_AND_DOWN, *10 * [0.8]], 8),
        ([None, *UP_AND_DOWN], 3),
        ([*12 * [0.8]], None),
        ([0.1, 0.3, 0.25, 0.45, 0.44, 0.6, 0.59, 0.7, 0.69, 0.8], 3),  # a dip of five points on the way up
        ([0.8, 0.77, 0.8, 0.7, *6 * [0.8]], 4),  # a fall of exactly three points is not deep
        ([0.1, 0.3, 0.28, 0.45, 0.44, 0.6, 0.59, 0.7, 0.69, 0.8], None),  # a noisy rise
    ],
)
def test_the_first_swing_is_the_first_deep_fall_of_an_oscillation(accuracies, expected):
    assert first_swing(records(accuracies)) == expected
