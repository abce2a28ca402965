"""Summaries of runs and of methods."""

from __future__ import annotations

import numpy as np
import pytest
from run_summaries import run_summary

from fedtaco.records import History, PartitionRecord, RoundRecord
from fedtaco.records.summary import predicts_one_class, summarize, summarize_methods

TARGET = 0.5


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
