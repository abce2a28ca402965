"""Random command lines: each ends with exit code 0, 2 or 3, without a traceback."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from random_commands import make_folder, random_command, run_command

CODES = {0: "exit code 0", 2: "exit code 2", 3: "exit code 3"}


def trial(number: int) -> str:
    """Run one random command line in a folder of its own."""
    arguments = random_command(number)
    with tempfile.TemporaryDirectory(prefix="fedtaco-soak-") as parent:
        folder = Path(parent) / "folder"
        make_folder(folder)
        with contextlib.chdir(folder):
            os.environ["FEDTACO_DATA"] = str(folder / "data")
            ended = run_command(arguments)
    if ended.traceback or ended.code not in CODES:
        return f"FAILED: {arguments}: exit code {ended.code}: {ended.traceback or ended.output[-300:]}"
    return CODES[ended.code]
