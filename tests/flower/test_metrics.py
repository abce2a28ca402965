"""Metrics of nodes: means are exact, and only values that no honest node can report are ignored."""

from __future__ import annotations

import math

import pytest

from fedtaco.flower.metrics import cap_counts, mean_metrics, read_number


def averaged(reported, key=None):
    means, problems = mean_metrics(reported, key)
    return dict(means), problems


def examples(*pairs, **others):
    """Return what nodes report, given the loss and number of examples of each."""
    return [{"loss": loss, "num-examples": count, **others} for loss, count in pairs]


def test_means_are_weighted_by_the_number_of_examples():
    means, problems = averaged(examples((0.001, 60), (0.45, 1100)), "num-examples")
    assert means["loss"] == pytest.approx((0.06 + 495) / 1160, rel=1e-14)
    assert problems == {}
    assert averaged(examples((1.0, 1), (2.0, 3)))[0]["loss"] == 1.5


@pytest.mark.parametrize(
    "values", [(0.001, 0.45), (0.45, 0.001, 0.002), (0.4, 0.5, 0.6, 1e290), (1.0, 1.0, -9.0), (3e11, 2e11)]
)
@pytest.mark.parametrize("name", ["loss", "training-loss", "own"])
def test_values_far_from_the_others_are_neither_changed_nor_reported(values, name):
    means, problems = averaged([{name: value} for value in values])
    assert means == {name: pytest.approx(math.fsum(values) / len(values), rel=1e-14)}
    assert problems == {}


def test_a_node_with_very_many_examples_has_their_weight():
    reported = examples((0.5, 1), (0.5, 1), (0.5, 1), (1.0, 999_997))
    assert averaged(reported, "num-examples")[0]["loss"] == pytest.approx(1 - 0.5 * 3e-6, rel=1e-14)


@pytest.mark.parametrize("count", [-1, math.nan, 2e12, 1e299, "many", True])
def test_an_impossible_number_of_examples_is_ignored_and_reported_once(count):
    means, problems = averaged(examples((1.0, 10), (9.0, count), (2.0, 30)), "num-examples")
    assert means["loss"] == pytest.approx(1.75)
    assert list(problems) == [1]
    assert len(problems[1]) == 1
    assert problems[1][0].startswith("num-examples is ")


def test_a_reply_without_the_weight_counts_nothing_and_is_reported():
    reported = [{"accuracy": 0.2, "num-examples": 3}, {"accuracy": 0.4, "num-examples": 1}, {"accuracy": 1.0}]
    means, problems = averaged(reported, "num-examples")
    assert means["accuracy"] == pytest.approx(0.25)
    assert problems == {2: ["num-examples is None"]}


def test_replies_count_alike_if_most_of_them_state_no_weight():
    """Otherwise, a node that states one would decide the means of nodes that state none."""
    reported = [{"accuracy": 0.2}, {"accuracy": 0.4}, {"accuracy": 0.9, "num-examples": 1e9}]
    assert averaged(reported, "num-examples") == ({"accuracy": pytest.approx(0.5)}, {})


def test_a_node_without_test_samples_is_no_problem():
    means, problems = averaged(examples((1.0, 10), (0.0, 0), (2.0, 30)), "num-examples")
    assert (means["loss"], problems) == (1.75, {})


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


def test_metrics_of_a_minority_are_left_out():
    assert averaged([{"loss": 1.0, "own": 3}, {"loss": 1.0}, {"loss": 1.0}])[0] == {"loss": 1.0}
    assert averaged([{"loss": 1.0}, {}, {"loss": 3.0}])[0] == {"loss": 2.0}


def test_names_of_metrics_are_printed_safely():
    _, problems = averaged([{"\x1b[2Jx": math.nan}])
    assert problems == {0: ["[2Jx is nan"]}


def test_nobody_counts_more_than_a_hundred_times_the_median():
    assert cap_counts([5, 10, 1e12]) == [5.0, 10.0, 1000.0]
    assert cap_counts([0, 0]) == [0.0, 0.0]


def test_only_finite_numbers_are_read():
    assert [read_number(value) for value in (1, 0.5)] == [1.0, 0.5]
    assert [read_number(value) for value in (True, "1", 1e301, math.inf, None, [1.0])] == [None] * 6
