"""Memory and descriptors over many rounds: they do not grow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import fedtaco
from fedtaco.records import RoundRecord
from fedtaco.runs.callbacks import Callback, Run

ENGINES = ("serial", "pool", "batched")
ROUNDS, FIRST = 400, 100
MAX_GROWTH_MB, MAX_NEW_DESCRIPTORS = 16.0, 2


class Usage(Callback):
    """Measures memory and open descriptors after two rounds."""

    def __init__(self) -> None:
        self.measured: list[tuple[float, int]] = []

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        if record.round in (FIRST, ROUNDS):
            self.measured.append((_memory_mb(), len(list(Path("/proc/self/fd").iterdir()))))


def trial(number: int) -> str:
    """Run 400 rounds; memory and descriptors of the last round are near those of round 100."""
    usage = Usage()
    engine = ENGINES[number % len(ENGINES)]
    settings: dict[str, Any] = {} if engine == "serial" else {"workers": 2}
    with tempfile.TemporaryDirectory(prefix="fedtaco-soak-") as folder:
        fedtaco.run(
            "scaffold",
            dataset="digits",
            clients=6,
            rounds=ROUNDS,
            local_steps=1,
            engine=engine,
            detector="guard",
            out=Path(folder) / "run",
            callbacks=[usage],
            **settings,
        )
    (memory, descriptors), (memory_at_end, descriptors_at_end) = usage.measured
    grown, opened = memory_at_end - memory, descriptors_at_end - descriptors
    if grown > MAX_GROWTH_MB or opened > MAX_NEW_DESCRIPTORS:
        return f"FAILED: {engine}: {grown:.1f} MB and {opened} descriptors more in {ROUNDS - FIRST} rounds"
    return "no growth"


def _memory_mb() -> float:
    fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) / 1024
