"""Damaged run folders: each is reported, loaded and resumed correctly, or refused with a sentence."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from folder_damage import damage, judge, shared_specimens


def trial(number: int) -> str:
    """Damage an unfinished or a finished run, and use it."""
    specimens = shared_specimens()
    source = (specimens.unfinished, specimens.finished)[number % 2]
    with tempfile.TemporaryDirectory(prefix="fedtaco-soak-") as parent:
        folder = shutil.copytree(source, Path(parent) / source.name)
        description = damage(folder, number, specimens.older)
        outcome = str(judge(folder, specimens))
    return outcome if outcome in ("correct", "refused") else f"FAILED: {description}: {outcome}"
