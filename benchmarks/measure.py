"""Measurements on a noisy machine: contenders take turns, and results are medians of ratios, with quartiles."""

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


@contextmanager
def benchmark_lock() -> Iterator[None]:
    """Exit if another benchmark is running on this machine, and prevent others from starting meanwhile."""
    with (HERE / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("Another benchmark is running on this machine; wait until it has finished.") from None
        yield


def take_turns(contenders: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Measure each contender once per turn; every turn starts with another contender.

    Parameters
    ----------
    contenders
        For each contender, a function that measures it once.
    turns
        Number of turns.

    Returns
    -------
    dict
        The measurements of each contender, one per turn.
    """
    names = list(contenders)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            measured[name].append(contenders[name]())
    return measured


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, float]:
    """Divide two contenders' measurements turn by turn; return the median of the ratios and their quartiles."""
    ratios = [above / below for above, below in zip(numerators, denominators, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"low": round(low, 3), "median": round(middle, 3), "high": round(high, 3)}


def run_contender(python: str, script: str, variant: str, case: str) -> dict[str, float]:
    """Run a contender in a process of its own and return what it measured.

    Parameters
    ----------
    python
        The interpreter to run it with.
    script
        A file in ``benchmarks/contenders``.
    variant
        The number of threads, or the engine.
    case
        A key of ``cases.CASES``.
    """
    command = [python, str(HERE / "contenders" / script), case, variant]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def machine() -> dict[str, Any]:
    """Return the processor, the number of cores, and the versions of Python and torch."""
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
