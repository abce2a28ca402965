"""Measuring on a noisy machine: contenders take turns, medians are reported, ratios come with their spread."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
Contender = Callable[[], float]


@contextmanager
def alone() -> Iterator[None]:
    """One benchmark at a time on this machine."""
    with (HERE / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("Another benchmark is running here; wait until it is done.") from None
        yield


def take_turns(contenders: Mapping[str, Contender], turns: int) -> dict[str, list[float]]:
    """Measure each contender once a turn, each turn beginning with another one."""
    names = list(contenders)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(contenders[name]())
    return taken


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """The median of the ratios within a turn, with the quartiles."""
    ratios = [one / other for one, other in zip(above, below, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"low": round(low, 3), "median": round(middle, 3), "high": round(high, 3)}


def in_a_process(python: str, script: str, case: str, variant: str) -> dict[str, float]:
    """What a contender reports of one run in a process of its own."""
    command = [python, str(HERE / "contenders" / script), case, variant]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def machine() -> dict[str, Any]:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
