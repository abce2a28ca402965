"""Which versions made a run: results may depend on them to the last bit."""

from __future__ import annotations

import platform
import warnings
from typing import Any

import numpy as np
import torch

from fedtaco.records import RunFolder


def versions(from_round: int) -> dict[str, Any]:
    """The versions in use from a round on, as they stand in a run folder beside fedtaco's own."""
    return {
        "from_round": from_round,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def keep_versions(folder: RunFolder, from_round: int) -> None:
    """Record the versions under which a run goes on, and say so where they are others than before."""
    ran_by = folder.config().get("ran_by", {})
    known, now = ran_by.get("versions", []), versions(from_round)
    before = known[-1] if known else {}
    changed = [name for name in now if name != "from_round" and before.get(name) != now[name]]
    if not changed:
        return
    if before:
        then = ", ".join(f"{name} {before.get(name)}" for name in changed)
        warnings.warn(
            f"A run that was begun with {then} goes on with {', '.join(f'{name} {now[name]}' for name in changed)}: "
            "its last bits may differ from those of an unbroken run.",
            RuntimeWarning,
            stacklevel=2,
        )
    folder.record_how({**ran_by, "versions": [*known, now]})
