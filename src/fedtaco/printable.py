"""Text of unknown origin, made safe for a terminal or a log."""

import re


def printable(text: object, limit: int = 300) -> str:
    """Return text from a file or a message as one line without control characters, of bounded length.

    Terminal escapes, line breaks, bidirectional controls, other invisible characters, and what cannot be encoded are
    replaced by a space.

    >>> printable("adult\\x1b[2J\\nHello\\u202e")
    'adult [2J Hello'
    """
    marked = "".join(letter if letter.isprintable() else "\0" for letter in str(text)[: 10 * limit])
    line = re.sub(" *\0[\0 ]*", " ", marked).strip()
    return line if len(line) <= limit else f"{line[:limit]} …"


def quoted(value: object) -> str:
    """Return an invalid value as error messages quote it.

    >>> quoted("high"), quoted(3)
    ("'high'", '3')
    """
    if isinstance(value, str | bytes | list | tuple):
        value = value[:200]  # a stranger's value may be huge
    return printable(repr(value), 100)
