"""Metrics of nodes: no single node decides a mean, and an invalid value is reported with its position."""

from __future__ import annotations

import math

import pytest

from fedtaco.flower.metrics import cap_counts, mean_metrics, metric_counts, read_number


def averaged(reported, counts=None):
    means, problems = mean_metrics(reported, counts or [1.0] * len(reported))
    return dict(means), problems


def test_means_are_weighted():
    assert averaged([{"loss": 1.0}, {"loss": 2.0}], [1, 3]) == ({"loss": 1.75}, {})


@pytest.mark.parametrize("value", [1e299, -0.1, 1.1, math.nan, math.inf, True, [0.5]])
def test_an_impossible_accuracy_is_ignored_and_reported(value):
    means, problems = averaged([{"accuracy": 0.5}, {"accuracy": value}, {"accuracy": 0.7}])
    assert means == {"accuracy": pytest.approx(0.6)}
    assert list(problems) == [1]
    assert problems[1][0].startswith("accuracy is ")


def test_a_nan_loss_does_not_erase_the_others():
    assert averaged([{"loss": 1.0}, {"loss": math.nan}, {"loss": 1.0}]) == ({"loss": 1.0}, {1: ["loss is nan"]})


def test_a_loss_that_no_node_can_compute_is_nan():
    assert math.isnan(averaged([{"loss": math.nan}] * 3)[0]["loss"])
    assert averaged([{"loss": math.nan}, {"loss": math.nan}, {"loss": 1.0}])[0] == {"loss": 1.0}


def test_few_nodes_cannot_state_that_the_model_has_diverged():
    assert averaged([{"loss": math.nan}] * 2)[0] == {}


def test_a_negative_value_among_positive_ones_is_clipped():
    means, problems = averaged([{"loss": 1.0}, {"loss": 1.0}, {"loss": -9.0}])
    assert means["loss"] == pytest.approx(2 / 3)
    assert list(problems) == [2]


def test_a_huge_loss_is_clipped_and_reported():
    means, problems = averaged([{"loss": 0.4}, {"loss": 0.5}, {"loss": 0.6}, {"loss": 1e290}])
    assert means["loss"] == pytest.approx((0.4 + 0.5 + 0.6 + 5.5) / 4)
    assert problems == {3: ["loss is 1e+290, far from the others"]}


def test_unequal_honest_losses_are_averaged_as_they_are():
    losses = [0.1, 0.5, 0.7, 2.0, 4.0]
    assert averaged([{"loss": loss} for loss in losses]) == ({"loss": pytest.approx(sum(losses) / 5)}, {})


def test_metrics_of_a_minority_are_left_out():
    assert averaged([{"loss": 1.0, "own": 3}, {"loss": 1.0}, {"loss": 1.0}])[0] == {"loss": 1.0}
    assert averaged([{"loss": 1.0}, {}, {"loss": 3.0}])[0] == {"loss": 2.0}


def test_names_of_metrics_are_printed_safely():
    _, problems = averaged([{"\x1b[2Jx": math.nan}])
    assert problems == {0: ["[2Jx is nan"]}


def test_nobody_counts_more_than_a_hundred_times_the_median():
    assert cap_counts([5, 10, 1e12]) == [5.0, 10.0, 1000.0]
    assert cap_counts([0, 0]) == [0.0, 0.0]


def test_replies_without_the_weight_count_nothing_unless_all_lack_it():
    reported = [{"accuracy": 0.2}, {"accuracy": 0.4, "num-examples": 3}]
    assert metric_counts(reported, "num-examples") == [0.0, 3.0]
    assert metric_counts(reported[:1] * 2, "num-examples") == [1.0, 1.0]
    assert metric_counts(reported, None) == [1.0, 1.0]


def test_only_finite_numbers_are_read():
    assert [read_number(value) for value in (1, 0.5)] == [1.0, 0.5]
    assert [read_number(value) for value in (True, "1", 1e301, math.inf, None, [1.0])] == [None] * 6


def test_training_losses_of_honest_nodes_may_differ_by_orders_of_magnitude():
    losses = [0.001, 0.002, 0.001, 0.5]
    reported = [{"training-loss": loss} for loss in losses]
    assert averaged(reported) == ({"training-loss": pytest.approx(sum(losses) / 4)}, {})
