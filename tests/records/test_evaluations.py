"""Stored evaluations on clients' own samples: complete, in order, and of existing clients."""

from __future__ import annotations

import json

import pytest

from fedtaco.records import ClientEvaluation
from fedtaco.records.evaluations import check_evaluations


def rows(*clients, **changes):
    """Return the lines of a file with one evaluation for each of these clients."""
    return [json.loads(json.dumps({**vars(ClientEvaluation(one, 20, 0.25, 1.5)), **changes})) for one in clients]


def test_clients_without_an_evaluation_may_be_missing():
    found = list(check_evaluations(rows(0, 2, 3), clients=4))
    assert found == [ClientEvaluation(client, 20, 0.25, 1.5, None, None) for client in (0, 2, 3)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (rows(0, 0), "the evaluation of client 0 of 3 is out of place"),
        (rows(1, 0), "the evaluation of client 0 of 3 is out of place"),
        (rows(3), "the evaluation of client 3 of 3 is out of place"),
        (rows(-1), "the evaluation of client -1 of 3 is out of place"),
        (rows(0, accuracy="high"), "accuracy: 'high' is not a number"),
        (rows(0, accuracy=1e300), "accuracy: 1e.300 is not a number"),
        (rows(0, more=1), "'more' is not a known entry"),
        ([{"client": 0}], "accuracy is missing"),
    ],
)
def test_evaluations_that_a_run_would_not_write_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        list(check_evaluations(lines, clients=3))
