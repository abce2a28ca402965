"""Text of unknown origin becomes one harmless line."""

from __future__ import annotations

import pickle

import pytest

from fedtaco.errors import InvalidInput, ProcessDied, RunStopped
from fedtaco.printable import printable


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("runs/a  b", "runs/a  b"),
        ("\x1b]0;evil\x07 title", "]0;evil title"),
        ("\x1b[2Jcleared", "[2Jcleared"),
        ("first\r\nsecond\n", "first second"),
        ("a\tb\x00c\x7fd\x9be", "a b c d e"),
        ("\u202eevil\u2066\u200f\u061c", "evil"),
        ("zero\u200bwidth\ufeff", "zero width"),
        ("line\u2028and\u2029paragraph", "line and paragraph"),
        ("undecodable \udcff", "undecodable"),
        ("naïve α 東京 😀", "naïve α 東京 😀"),
        (3.5, "3.5"),
        ("x" * 400, "x" * 300 + " …"),
    ],
)
def test_text_becomes_one_printable_line(text, line):
    assert printable(text) == line
    assert printable(line).isprintable()


@pytest.mark.parametrize("error", [InvalidInput, RunStopped, ProcessDied])
def test_messages_of_errors_are_printable_lines_of_bounded_length(error):
    raised = error("The dataset is \x1b[2J\u202e'x'.\n" + "y" * 10_000)
    assert str(raised).startswith("The dataset is [2J 'x'. yyy")
    assert len(str(raised)) < 2010
    assert str(pickle.loads(pickle.dumps(raised))) == str(raised)
