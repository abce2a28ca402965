"""Runs that are killed at random moments: they continue, and end with the same bits as an uninterrupted run."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import nodes
import torch

import fedtaco
from fedtaco.flower.log import log
from fedtaco.methods import METHODS
from soak.same_run import difference, fingerprint

ENGINES = ("serial", "pool", "batched", "flower")
SETTINGS: dict[str, Any] = {"dataset": "digits", "clients": 6, "rounds": 12, "local_steps": 4, "batch_size": 16}
KILLS = 5
"""Number of kills before a run may finish."""
FORK = multiprocessing.get_context("fork")


def trial(number: int) -> str:
    """Kill one run five times, then let it finish."""
    engine, method = ENGINES[number % len(ENGINES)], list(METHODS)[(number // len(ENGINES)) % len(METHODS)]
    rng = random.Random(number)
    with tempfile.TemporaryDirectory(prefix="fedtaco-soak-") as folder:
        out = Path(folder) / "run"
        for _ in range(KILLS):
            process = _start(engine, method, out)
            time.sleep(rng.uniform(0.0, 0.4))
            _kill(process)
        process = _start(engine, method, out)
        process.join()
        if process.exitcode != 0:
            return f"FAILED: {engine}, {method}: the run ended with exit code {process.exitcode}"
        changed = difference(_expected(engine, method), fingerprint(out))
    return "same bits" if changed is None else f"FAILED: {engine}, {method}: {changed} differs"


@cache
def _expected(engine: str, method: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fedtaco-soak-") as folder:
        process = _start(engine, method, Path(folder) / "run")
        process.join()
        return fingerprint(Path(folder) / "run")


def _start(engine: str, method: str, out: Path) -> Any:
    process = FORK.Process(target=_run, args=(engine, method, out))
    process.start()
    return process


def _run(engine: str, method: str, out: Path) -> None:
    os.setpgrp()
    torch.set_num_threads(1)
    if engine == "flower":
        log.disabled = True
        configs = [{"memory-dir": str(out.parent / f"memory-{place}")} for place in range(5)]
        nodes.run(nodes.small_strategy(method, checkpoint=out), nodes.small_nodes(configs=configs), 12)
    else:
        workers = None if engine == "serial" else 2
        fedtaco.run(method, out=out, engine=engine, workers=workers, resume=True, detector="norm", **SETTINGS)


def _kill(process: Any) -> None:
    """Kill a run and its worker processes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()
