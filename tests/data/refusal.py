"""Check that a damaged file is refused with one sentence that names it."""

from __future__ import annotations

import pytest

from fedtaco import InvalidInput
from fedtaco.data import load_dataset

HTML = b"<!DOCTYPE html>\n<html><body><h1>404 Not Found</h1></body></html>\n"


def as_cases(table):
    """Return a table, damage -> (function, words), as parameters of a test."""
    return [pytest.param(change, words, id=name) for name, (change, words) in table.items()]


def check_refused(name, root, words, file):
    """Load a dataset and check the error: it contains these words, names the file and leaves no cache."""
    with pytest.raises(InvalidInput, match=words) as error:
        load_dataset(name, root)
    message = str(error.value)
    assert message.isprintable()
    assert str(file) in message
    assert len(message) < 1000
    assert not list(root.glob("cache/*/*"))
