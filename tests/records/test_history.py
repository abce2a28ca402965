"""The history of a run as a user sees it: tables, columns and its representation."""

from __future__ import annotations

import pytest
from run_helpers import CallAfterRounds
from small_training import train

from fedtaco import InvalidInput


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
