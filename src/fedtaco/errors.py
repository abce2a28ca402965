"""Errors that a user can do something about."""

import difflib
from collections.abc import Iterable
from typing import Any

from fedtaco.printable import printable

MAX_LENGTH = 2000
"""Maximum number of characters in the message of an error."""
LISTED_NAMES = 30
"""Number of known names up to which a message lists all of them besides the most similar one."""


class OneLineError(Exception):
    """Base of fedtaco's errors: the message is one printable line, whatever it quotes from files and messages."""

    def __init__(self, message: object) -> None:
        super().__init__(printable(message, MAX_LENGTH))


class InvalidInput(OneLineError, ValueError):
    """Raised for invalid input; the message says what is wrong and what would be valid."""

    exit_code = 2


class RunStopped(OneLineError, RuntimeError):
    """Raised when a run cannot continue, for instance because it diverged; ``history`` holds the finished rounds."""

    exit_code = 3
    history: Any = None


class ProcessDied(OneLineError, RuntimeError):
    """Raised when a process was killed during a run, for instance for lack of memory; a recorded run can be resumed."""

    exit_code = 3


class StopTraining(OneLineError):
    """Raised by a callback to end a run early; the message says why.

    The round is recorded, and so are a checkpoint and a summary; the run returns its result and can be resumed.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> InvalidInput:
    """Return the error for an unknown name; it suggests the most similar known name, and lists all if they are few.

    >>> str(unknown("method", "tako", ["taco", "fedavg"]))
    "There is no method 'tako'; did you mean 'taco'? Known: fedavg, taco."
    """
    names = sorted(known)
    matches = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    if matches and len(names) > LISTED_NAMES:
        return InvalidInput(f"There is no {kind} '{printable(name)}'; did you mean '{matches[0]}'?")
    hint = f"; did you mean '{matches[0]}'?" if matches else "."
    return InvalidInput(f"There is no {kind} '{printable(name)}'{hint} Known: {', '.join(names)}.")
