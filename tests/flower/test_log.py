"""Log lines of the server contain texts from nodes as harmless words."""

from __future__ import annotations

from fedtaco.flower.log import log

EVIL = "\x1b]0;evil\x07\x1b[2J\r\n\u202eINFO: all is well"


def test_texts_in_log_lines_are_printable(lines):
    log.warning("Round %d: the reply of %s is dropped: %s (%.1f%%).", 3, "node 7", EVIL, 12.34)
    log.warning("\t├── %s", ValueError(EVIL))
    assert lines == [
        "Round 3: the reply of node 7 is dropped: ]0;evil [2J INFO: all is well (12.3%).",
        "\t├── ]0;evil [2J INFO: all is well",
    ]
