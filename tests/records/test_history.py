"""The history of a run as a user sees it: tables, columns and its representation."""

from __future__ import annotations

import pytest
from run_helpers import CallAfterRounds
from small_training import train

from fedtaco import InvalidInput
from fedtaco.records import History, RoundRecord


def test_history_has_tables():
    seen = []
    result = train(callbacks=[CallAfterRounds(seen.append)])
    assert seen == result.history.rounds
    assert [row["round"] for row in result.history.table()] == [1, 2, 3]
    assert len(result.history.client_table()) == 12
    assert result.history.column("accuracy")[-1] == result.history.final_accuracy


def test_history_has_a_short_representation_and_explains_unknown_columns():
    history = train().history
    assert repr(history).startswith("<History of 3 rounds")
    assert history[-1].round == 3
    with pytest.raises(InvalidInput, match="did you mean 'accuracy'"):
        history.column("acuracy")


def measured(*accuracies):
    """Return a history with these accuracies; ``None`` for a round without evaluation."""
    records = [
        RoundRecord(number, accuracy, accuracy and 1 - accuracy, 2.0, 3.0)
        for number, accuracy in enumerate(accuracies, start=1)
    ]
    return History(records)


@pytest.mark.parametrize(
    ("accuracies", "rounds", "is_upper_bound"),
    [
        ([0.5, 0.8, 0.9], 2, False),
        ([0.8, 0.9], 1, False),
        ([None, None, 0.8, None, None, 0.9], 3, True),
        ([None, None, 0.5, None, None, 0.9], 6, True),
        ([None, None, 0.5, 0.9], 4, False),
        ([None, 0.5], None, False),
        ([None, None], None, False),
    ],
)
def test_rounds_to_a_target_are_an_upper_bound_if_the_round_before_was_not_evaluated(
    accuracies, rounds, is_upper_bound
):
    history = measured(*accuracies)
    assert (history.rounds_to(0.7), history.is_upper_bound(0.7)) == (rounds, is_upper_bound)
    assert history.seconds_to(0.7) == (None if rounds is None else 2.0 * rounds)


def test_final_accuracy_is_that_of_the_last_evaluated_round():
    assert measured(0.5, None, 0.75, None).final_accuracy == 0.75
    assert measured(None, None).final_accuracy is None
    assert History().final_accuracy is None
