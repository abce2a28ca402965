"""Summaries of runs and of methods."""

from __future__ import annotations

import numpy as np
import pytest
from run_summaries import run_summary

from fedtaco.records import ClientEvaluation, History, PartitionRecord, RoundRecord
from fedtaco.records.method_summary import summarize_methods
from fedtaco.records.summary import predicts_one_class, summarize

TARGET = 0.5
AT_MOST_10 = {"rounds_to_target": 10, "rounds_to_target_is_upper_bound": True}


def marks(*runs):
    (row,) = summarize_methods([run_summary("taco", seed, **run) for seed, run in enumerate(runs)])
    return row.rounds_mark, row.paper_mark


@pytest.mark.parametrize(
    ("runs", "mark", "paper"),
    [
        ([{"rounds_to_target": 10}, {"rounds_to_target": 13}], "11.5", "11.5"),
        ([{"rounds_to_target": 10}, {"accuracy": 0.48}], "20+", "20+"),
        ([{"rounds_to_target": 10}, {"accuracy": 0.44}], "20+↓", "×"),
        ([{"rounds_to_target": 10, "accuracy": 0.2}], "10↓", "×"),
        ([{"rounds_to_target": 10}, {"rounds_to_target": 10, "stopped": "It diverged."}], "×", "×"),
        ([{"accuracy": None}], "–", "–"),
        ([AT_MOST_10], "≤ 10", "≤ 10"),
        ([AT_MOST_10, {"rounds_to_target": 9}], "≤ 9.5", "≤ 9.5"),
    ],
)
def test_runs_that_diverged_and_runs_that_ended_low_have_different_marks(runs, mark, paper):
    assert marks(*runs) == (mark, paper)


@pytest.mark.parametrize(
    ("accuracy", "class_accuracy", "counts", "expected"),
    [
        (0.3, [0.0, 1.0, 0.0], [50, 30, 20], True),
        (0.5, [0.9, 0.0, 0.25], [50, 30, 20], False),
        (1.0, [1.0, 1.0], [50, 50], False),
        (1.0, [1.0, None], [50, 0], False),
        (0.51, None, [50, 30, 20], True),
        (0.53, None, [50, 30, 20], False),
        (0.5, None, [], False),
        (None, None, [50, 50], False),
    ],
)
def test_a_model_that_predicts_one_class_is_recognised(accuracy, class_accuracy, counts, expected):
    record = RoundRecord(1, accuracy, 1.0, None, 1.0, class_accuracy=class_accuracy)
    assert predicts_one_class(record, counts) == expected
    summary = summarize(History([record]), TARGET, PartitionRecord([], np.zeros((0, 3), dtype=int)), counts)
    assert summary["predicts_one_class"] == expected


def test_share_of_the_most_frequent_class_is_that_of_the_test_set():
    partition = PartitionRecord.unknown(2)
    assert summarize(History(), TARGET, partition, [50, 30, 20])["majority_share"] == 0.5
    assert summarize(History(), TARGET, partition)["majority_share"] is None


def test_figures_are_those_of_the_last_evaluated_round():
    """Rounds 1 and 3 were evaluated; clients hold labels 0 and 1 in other proportions."""
    rounds = [
        RoundRecord(1, 0.5, 1.0, None, 1.0, evaluation_seconds=0.5, class_accuracy=[0.2, 0.8], balanced_accuracy=0.5),
        RoundRecord(2, None, None, None, 1.0, training_loss=2.0),
        RoundRecord(
            3,
            0.6,
            1.0,
            None,
            1.0,
            evaluation_seconds=0.25,
            training_loss=1.0,
            class_accuracy=[0.4, 0.8],
            balanced_accuracy=0.6,
            metrics={"f1": 0.3},
        ),
        RoundRecord(4, None, None, None, 1.0, training_loss=0.5),
    ]
    partition = PartitionRecord([], np.array([[10, 0], [5, 5]]))
    summary = summarize(History(rounds), TARGET, partition, samples=(100, 250))
    assert (summary["final_accuracy"], summary["balanced_accuracy"]) == (0.6, 0.6)
    assert summary["worst_tenth_accuracy"] == pytest.approx(0.4)
    assert (summary["metrics"], summary["training_loss"], summary["evaluation_seconds"]) == ({"f1": 0.3}, 0.5, 0.75)
    assert (summary["evaluated_samples"], summary["test_samples"]) == (100, 250)
    assert (summary["rounds_to_target"], summary["rounds_to_target_is_upper_bound"]) == (1, False)
    (row,) = summarize_methods([run_summary("taco", **summary)])
    assert (row.samples, row.balanced_accuracy) == ((100, 250), 0.6)


def test_evaluations_by_client_are_summarised():
    evaluations = [ClientEvaluation(client, 5, client / 20, 2.0, 1 - client / 40, 1.0) for client in range(20)]
    evaluations[3] = ClientEvaluation(3, 5, 0.15, 2.0)
    own = summarize(History(), TARGET, PartitionRecord.unknown(20), evaluations=evaluations)["client_evaluation"]
    assert (own["clients"], own["loss"], own["tuned_loss"]) == (20, 2.0, 1.0)
    assert own["accuracy"]["mean"] == pytest.approx(sum(range(20)) / 400)
    assert own["accuracy"]["worst_tenth"] == pytest.approx((0 + 1) / 40)
    assert (own["accuracy"]["best"], own["accuracy"]["best_client"]) == (0.95, 19)
    assert (own["accuracy"]["worst"], own["accuracy"]["worst_client"]) == (0.0, 0)
    assert own["tuned_accuracy"]["worst_tenth"] == pytest.approx(1 - 19 / 40)
    (row,) = summarize_methods([run_summary("taco", client_evaluation=own), run_summary("taco", 1)])
    assert (row.own_accuracy, row.own_worst_tenth) == (pytest.approx(0.475), pytest.approx(0.025))
    assert summarize(History(), TARGET, PartitionRecord.unknown(1))["client_evaluation"] is None
