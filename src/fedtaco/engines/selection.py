"""The rule by which ``auto`` selects an engine: fixed, so that the same run is done the same way again.

The constants were calibrated by ``make bench`` (docs/performance.md); nothing is timed at run time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fedtaco.client import ClientRunner
from fedtaco.data import TensorSamples
from fedtaco.engines.base import Engine
from fedtaco.engines.batched import BatchedEngine
from fedtaco.engines.pool import PoolEngine
from fedtaco.engines.serial import SerialEngine
from fedtaco.errors import InvalidInput
from fedtaco.models import Stack, Unstackable, stack_by_hand, stack_model
from fedtaco.processes import can_fork

MIN_SECONDS_TO_FORK = 1.0
"""Estimated seconds of a run from which worker processes are worth their start."""
MIN_STEPS_TO_STACK = 10
"""Client steps of a run from which a stack is worth trying out."""
STEP_SECONDS, STEP_SECONDS_PER_PARAMETER = 0.4e-3, 0.12e-6
"""A rough estimate of one client's step on one core."""
MAX_PARAMETERS_BY_HAND = 500_000
"""Parameters up to which stacked layers are faster than one client after another on a core."""
NUMBERS_IN_CACHE, NUMBERS_IN_MEMORY = 1 << 20, 1 << 28
"""Numbers that a stack may work on at once, on a CPU and on an accelerator."""


@dataclass(frozen=True)
class EngineChoice:
    """An engine with everything its results depend on, and why it was chosen."""

    name: Literal["serial", "pool", "batched"]
    reason: str
    workers: int = 1
    chunk: int = 0
    """Clients per stack; 0 if clients are not stacked."""
    stack: Stack | None = None

    def build(self, runner: ClientRunner) -> Engine:
        """Return the engine."""
        if self.stack is not None:
            return BatchedEngine(runner, self.stack, chunk=self.chunk, workers=self.workers)
        return PoolEngine(runner, self.workers) if self.name == "pool" else SerialEngine(runner)

    def to_config(self) -> dict[str, Any]:
        """Return what a run folder records; a resumed run uses the same engine."""
        own = {"engine": self.name, "reason": self.reason}
        return {**own, "chunk": self.chunk} if self.chunk else own

    def __str__(self) -> str:
        details = [f"stacks of {self.chunk} clients"] if self.chunk else []
        details += [f"{self.workers} worker processes"] if self.workers > 1 else []
        return f"{self.name} ({', '.join(details)}): {self.reason}" if details else f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class Workload:
    """What the rule depends on."""

    runner: ClientRunner
    steps: Sequence[int]
    """Local steps of each client."""
    cohort: int
    """Clients per round."""
    cores: int

    @property
    def on_cpu(self) -> bool:
        return self.runner.model.device.type == "cpu"

    @property
    def processes(self) -> int:
        """Number of worker processes that are worth their start."""
        possible = self.on_cpu and can_fork() and self.seconds >= MIN_SECONDS_TO_FORK
        return max(1, min(self.cores, self.cohort)) if possible else 1

    @property
    def client_steps(self) -> float:
        """Local steps of all clients over the whole run."""
        return self.runner.config.constants.rounds * self.cohort * sum(self.steps) / len(self.steps)

    @property
    def seconds(self) -> float:
        """A rough estimate of the whole run with one client after another."""
        return self.client_steps * (STEP_SECONDS + STEP_SECONDS_PER_PARAMETER * self.runner.model.vector.numel())

    def chunk(self, workers: int) -> int:
        """Return the clients per stack: what the budget of numbers allows, spread evenly over the workers."""
        config, model = self.runner.config, self.runner.model
        inputs = self.runner.first_batch()[0][0].numel()
        numbers = 4 * model.vector.numel() + config.batch_size * inputs
        limit = max(1, (NUMBERS_IN_CACHE if self.on_cpu else NUMBERS_IN_MEMORY) // numbers)
        turns = -(-self.cohort // (workers * limit))
        return -(-self.cohort // (workers * turns))


def select_engine(
    name: str, workload: Workload, *, workers: int | None = None, previous: Mapping[str, Any] | None = None
) -> EngineChoice:
    """Select an engine by name, or by the rule if ``name`` is ``auto``.

    Parameters
    ----------
    name
        ``auto``, ``serial``, ``pool`` or ``batched``.
    workload
        The work of the run.
    workers
        Number of worker processes; by default, as many as are worth their start.
    previous
        What the folder of a resumed run recorded of its engine; it takes precedence over the rule.
    """
    if workers is not None and workers < 1:
        raise InvalidInput(f"workers is {workers}; it must be at least 1.")
    if workers is not None and name == "serial":
        raise InvalidInput("workers are for the engines pool and batched; serial runs one client after another.")
    processes = workload.processes if workers is None else min(workers, workload.cohort)
    if previous is not None:
        return _by_name(previous["engine"], workload, processes, previous.get("chunk"), previous["reason"])
    if name == "auto":
        return _by_rule(workload, processes)
    if name == "pool" and workers is None:
        processes = min(workload.cores, workload.cohort)
    return _by_name(name, workload, processes)


def _by_name(
    name: str, workload: Workload, processes: int, chunk: int | None = None, reason: str = "chosen by name"
) -> EngineChoice:
    if name == "serial":
        return EngineChoice("serial", reason)
    if name == "pool":
        if not workload.on_cpu:
            raise InvalidInput(f"The engine pool runs on the CPU, not on {workload.runner.model.device}; use batched.")
        return EngineChoice("pool", reason, processes)
    try:
        stack = stack_model(workload.runner.model, workload.runner.config.loss, *_trial_batch(workload.runner))
    except Unstackable as obstacle:
        return _without_stack(workload, processes, f"the model cannot be stacked: {obstacle}")
    return EngineChoice("batched", reason, processes, chunk or workload.chunk(processes), stack)


def _by_rule(workload: Workload, processes: int) -> EngineChoice:
    model = workload.runner.model
    if workload.cohort == 1 or workload.client_steps < MIN_STEPS_TO_STACK:
        return EngineChoice(
            "serial", "one client takes part in a round" if workload.cohort == 1 else "the run is very short"
        )
    if not workload.on_cpu:
        return _by_name("batched", workload, 1, reason=f"stacked clients keep {model.device} busy")
    if len(set(workload.steps)) * 2 > workload.cohort:
        return _without_stack(workload, processes, "few clients take equally many steps")
    if model.vector.numel() > MAX_PARAMETERS_BY_HAND:
        return _without_stack(
            workload, processes, f"{model.vector.numel():,} parameters are too many to stack on a CPU"
        )
    stack = stack_by_hand(model, workload.runner.config.loss, *_trial_batch(workload.runner))
    if stack is None:
        return _without_stack(workload, processes, "only linear layers with ReLU are faster stacked on a CPU")
    reason = "small linear layers are faster stacked"
    return EngineChoice("batched", reason, processes, workload.chunk(processes), stack)


def _without_stack(workload: Workload, processes: int, obstacle: str) -> EngineChoice:
    if processes > 1:
        return EngineChoice("pool", obstacle, processes)
    if not workload.on_cpu:
        alone = "pool is for the CPU"
    elif workload.cores == 1:
        alone = "there is one core"
    elif not can_fork():
        alone = "processes are forked on Linux only"
    else:
        alone = "too little work for several processes" if workload.processes == 1 else "it has one process to itself"
    return EngineChoice("serial", f"{obstacle}, and {alone}")


def _trial_batch(runner: ClientRunner) -> tuple[tuple[torch.Tensor, torch.Tensor], bool]:
    """Return a batch to try a stack on, and whether all targets are class labels."""
    return runner.first_batch(), all(
        isinstance(own, TensorSamples) and not own.y.is_floating_point() and int(own.labels().min()) >= 0
        for own in runner.clients
    )
