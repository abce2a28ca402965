"""Which engine runs a cohort: a fixed rule, so that the same run is done the same way again.

The constants were calibrated by ``make bench`` (docs/performance.md); nothing is timed at run time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fedtaco.data import TensorSamples
from fedtaco.engines.base import Engine
from fedtaco.engines.batched import BatchedEngine
from fedtaco.engines.crew import can_fork
from fedtaco.engines.pool import PoolEngine
from fedtaco.engines.serial import SerialEngine
from fedtaco.errors import InvalidInput
from fedtaco.local import Worker
from fedtaco.models import Stack, Unstackable, stack_by_hand, stack_model

EngineName = Literal["auto", "serial", "pool", "batched"]

WORTH_FORKING = 1.0
"""Seconds of work from which on worker processes pay for their start."""
WORTH_STACKING = 10
"""Client steps from which on a stack pays for trying it out."""
STEP_SECONDS, STEP_SECONDS_PER_PARAMETER = 0.4e-3, 0.12e-6
"""A rough estimate of one client's step on one core."""
LARGEST_BY_HAND = 500_000
"""Parameters up to which stacked layers beat one client after another on a core."""
NUMBERS_IN_CACHE, NUMBERS_IN_MEMORY = 1 << 20, 1 << 28
"""Numbers that a stack may work on at once, on a CPU and on an accelerator."""


@dataclass(frozen=True)
class Choice:
    """An engine with all that its results depend on, and why it was chosen."""

    name: Literal["serial", "pool", "batched"]
    reason: str
    workers: int = 1
    chunk: int = 0
    """Clients in one stack, where clients are stacked."""
    stack: Stack | None = None

    def build(self, worker: Worker) -> Engine:
        if self.stack is not None:
            return BatchedEngine(worker, self.stack, chunk=self.chunk, workers=self.workers)
        return PoolEngine(worker, self.workers) if self.name == "pool" else SerialEngine(worker)

    def stored(self) -> dict[str, Any]:
        """As it stands in a run folder; a resumed run is done in the same way."""
        own = {"engine": self.name, "reason": self.reason}
        return {**own, "chunk": self.chunk} if self.chunk else own

    def __str__(self) -> str:
        details = [f"stacks of {self.chunk} clients"] if self.chunk else []
        details += [f"{self.workers} worker processes"] if self.workers > 1 else []
        return f"{self.name} ({', '.join(details)}): {self.reason}" if details else f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class Work:
    """What a rule may look at: a worker, the steps of each client, the cohort, rounds, and cores."""

    worker: Worker
    steps: Sequence[int]
    cohort: int
    cores: int

    @property
    def on_cpu(self) -> bool:
        return self.worker.model.device.type == "cpu"

    @property
    def processes(self) -> int:
        """How many worker processes it would be worth to fork."""
        possible = self.on_cpu and can_fork() and self.seconds >= WORTH_FORKING
        return max(1, min(self.cores, self.cohort)) if possible else 1

    @property
    def client_steps(self) -> float:
        """Of the whole run."""
        return self.worker.plan.setting.rounds * self.cohort * sum(self.steps) / len(self.steps)

    @property
    def seconds(self) -> float:
        """A rough estimate of the whole run, one client after another."""
        return self.client_steps * (STEP_SECONDS + STEP_SECONDS_PER_PARAMETER * self.worker.model.vector.numel())

    def chunk(self, workers: int) -> int:
        """Clients in one stack: what the budget of numbers allows, as even over the workers as it goes."""
        plan, model = self.worker.plan, self.worker.model
        inputs = self.worker.first_batch()[0][0].numel()
        numbers = 4 * model.vector.numel() + plan.batch_size * inputs
        limit = max(1, (NUMBERS_IN_CACHE if self.on_cpu else NUMBERS_IN_MEMORY) // numbers)
        turns = -(-self.cohort // (workers * limit))
        return -(-self.cohort // (workers * turns))


def choose_engine(
    name: EngineName, work: Work, *, workers: int | None = None, chosen: Mapping[str, Any] | None = None
) -> Choice:
    """The engine by this name, or by the rule; ``chosen`` is what a run that is resumed had stored."""
    if workers is not None and workers < 1:
        raise InvalidInput(f"workers is {workers}; it must be at least 1.")
    if workers is not None and name == "serial":
        raise InvalidInput("workers are for the engines pool and batched; serial runs one client after another.")
    processes = work.processes if workers is None else min(workers, work.cohort)
    if chosen is not None:
        return _as_asked(chosen["engine"], work, processes, chosen.get("chunk"), chosen["reason"])
    if name == "auto":
        return _by_rule(work, processes)
    if name == "pool" and workers is None:
        processes = min(work.cores, work.cohort)
    return _as_asked(name, work, processes)


def _as_asked(name: str, work: Work, processes: int, chunk: int | None = None, reason: str = "as asked") -> Choice:
    if name == "serial":
        return Choice("serial", reason)
    if name == "pool":
        if not work.on_cpu:
            raise InvalidInput(f"The engine pool runs on the CPU, not on {work.worker.model.device}; use batched.")
        return Choice("pool", reason, processes)
    try:
        stack = stack_model(work.worker.model, work.worker.plan.loss, *_trial(work.worker))
    except Unstackable as obstacle:
        return _one_by_one(work, processes, f"the model cannot be stacked: {obstacle}")
    return Choice("batched", reason, processes, chunk or work.chunk(processes), stack)


def _by_rule(work: Work, processes: int) -> Choice:
    model = work.worker.model
    if work.cohort == 1 or work.client_steps < WORTH_STACKING:
        return Choice("serial", "one client takes part in a round" if work.cohort == 1 else "it is over in a moment")
    if not work.on_cpu:
        return _as_asked("batched", work, 1, reason=f"stacked clients keep {model.device} busy")
    if len(set(work.steps)) * 2 > work.cohort:
        return _one_by_one(work, processes, "few clients take equally many steps")
    if model.vector.numel() > LARGEST_BY_HAND:
        return _one_by_one(work, processes, f"{model.vector.numel():,} parameters are too many to stack on a CPU")
    stack = stack_by_hand(model, work.worker.plan.loss, *_trial(work.worker))
    if stack is None:
        return _one_by_one(work, processes, "only linear layers with ReLU are faster stacked on a CPU")
    reason = "small linear layers are faster stacked"
    return Choice("batched", reason, processes, work.chunk(processes), stack)


def _one_by_one(work: Work, processes: int, obstacle: str) -> Choice:
    if processes > 1:
        return Choice("pool", obstacle, processes)
    if not work.on_cpu:
        alone = "pool is for the CPU"
    elif work.cores == 1:
        alone = "there is one core"
    elif not can_fork():
        alone = "processes are forked on Linux only"
    else:
        alone = "too little work for several processes" if work.processes == 1 else "it has one process to itself"
    return Choice("serial", f"{obstacle}, and {alone}")


def _trial(worker: Worker) -> tuple[tuple[torch.Tensor, torch.Tensor], bool]:
    """A batch to try a stack on, and whether all targets are plain labels."""
    return worker.first_batch(), all(
        isinstance(own, TensorSamples) and not own.y.is_floating_point() and int(own.labels().min()) >= 0
        for own in worker.clients
    )


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
