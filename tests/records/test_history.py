"""The history of a run as a user sees it: tables, columns, plots and its representation."""

from __future__ import annotations

import matplotlib as mpl
import pytest
from run_helpers import CallAfterRounds
from small_training import train

from fedtaco import InvalidInput

mpl.use("Agg")


def test_history_has_tables_and_a_plot(tmp_path):
    seen = []
    result = train(callbacks=[CallAfterRounds(seen.append)])
    assert seen == result.history.rounds
    assert [row["round"] for row in result.history.table()] == [1, 2, 3]
    assert len(result.history.client_table()) == 12
    assert result.history.column("accuracy")[-1] == result.history.final_accuracy
    result.history.plot(tmp_path / "curve.png", label="TACO")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_history_has_a_short_representation_and_explains_unknown_columns():
    history = train().history
    assert repr(history).startswith("<History of 3 rounds")
    assert history[-1].round == 3
    with pytest.raises(InvalidInput, match="did you mean 'accuracy'"):
        history.column("acuracy")
