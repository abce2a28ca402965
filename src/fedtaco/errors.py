"""The ways a run can go wrong that a person can do something about."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class InvalidInput(ValueError):
    """A setting that cannot work: one sentence that names it and says what would be right."""

    exit_code = 2


class RunStopped(RuntimeError):
    """A run that cannot go on, such as one that diverged; ``history`` keeps what it recorded."""

    exit_code = 3
    history: Any = None


class ProcessDied(RuntimeError):
    """A process that was killed in the midst of a run, as when memory runs out; a recorded run can be resumed."""

    exit_code = 3


def unknown(kind: str, name: str, known: Iterable[str]) -> InvalidInput:
    """The error for a name that does not exist, with the nearest one that does.

    >>> str(unknown("method", "tako", ["taco", "fedavg"]))
    "There is no method 'tako'; did you mean 'taco'? Known: fedavg, taco."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InvalidInput(f"There is no {kind} '{name}'{hint} Known: {', '.join(names)}.")
