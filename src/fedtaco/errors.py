"""Errors that a user can do something about."""

import difflib
from collections.abc import Iterable
from typing import Any


class InvalidInput(ValueError):
    """Invalid input; the message is one sentence that names the field, its value and what would be right."""

    exit_code = 2


class RunStopped(RuntimeError):
    """A run that cannot continue, such as one that diverged; ``history`` holds the rounds before."""

    exit_code = 3
    history: Any = None


class ProcessDied(RuntimeError):
    """A process that was killed during a run, for instance by lack of memory; a recorded run can be resumed."""

    exit_code = 3


def unknown(kind: str, name: str, known: Iterable[str]) -> InvalidInput:
    """Return the error for an unknown name, with the most similar known one.

    >>> str(unknown("method", "tako", ["taco", "fedavg"]))
    "There is no method 'tako'; did you mean 'taco'? Known: fedavg, taco."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InvalidInput(f"There is no {kind} '{name}'{hint} Known: {', '.join(names)}.")
