"""Versions of Python, torch and numpy with which a run was made; the last bits of its results may depend on them."""

import platform
import warnings
from typing import Any

import numpy as np
import torch

from fedtaco.records import RunFolder


def current_versions(from_round: int) -> dict[str, Any]:
    """Return the current versions, with the first round that is run with them, as a run folder records them."""
    return {
        "from_round": from_round,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def record_versions(folder: RunFolder, from_round: int) -> None:
    """Record the versions with which a run continues; warn if they differ from the earlier ones."""
    ran_by = folder.config().get("ran_by", {})
    known, now = ran_by.get("versions", []), current_versions(from_round)
    before = known[-1] if known else {}
    changed = [name for name in now if name != "from_round" and before.get(name) != now[name]]
    if not changed:
        return
    if before:
        then = ", ".join(f"{name} {before.get(name)}" for name in changed)
        warnings.warn(
            f"A run that began with {then} continues with {', '.join(f'{name} {now[name]}' for name in changed)}: "
            "its results may differ in the last bits from those of an uninterrupted run.",
            RuntimeWarning,
            stacklevel=2,
        )
    folder.record_ran_by({**ran_by, "versions": [*known, now]})
