"""Selection of an engine by name, or by the fixed rule of ``auto``.

Nothing is timed at run time, so that the same run always gets the same engine on a machine. The constants of
the rule were calibrated by ``make bench`` (docs/performance.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedtaco.client import ClientRunner
from fedtaco.data import TensorSamples, have_equal_shapes
from fedtaco.engines.base import Engine
from fedtaco.engines.batched import BatchedEngine
from fedtaco.engines.pool import PoolEngine
from fedtaco.engines.serial import SerialEngine
from fedtaco.errors import InvalidInput, unknown
from fedtaco.inputs import Batch, tensors_of
from fedtaco.models import Stack, Unstackable, stack_linear, stack_model
from fedtaco.processes import can_fork
from fedtaco.records.formatting import pluralize

MIN_SECONDS_TO_FORK = 1.0
"""Minimum estimated duration of a run, in seconds, for which worker processes are started."""
MIN_STEPS_TO_STACK = 10
"""Minimum number of client steps in a run for which stacking is considered."""
STEP_SECONDS, STEP_SECONDS_PER_PARAMETER = 0.4e-3, 0.12e-6
"""Rough estimate of the seconds that a client's step takes on one core: a constant, and a part per parameter."""
MAX_PARAMETERS_BY_HAND = 500_000
"""Maximum number of parameters for which stacked layers are faster on a CPU than one client after another."""
NUMBERS_IN_CACHE, NUMBERS_IN_MEMORY = 1 << 20, 1 << 28
"""Maximum number of values that a stack works on at once, on a CPU and on an accelerator."""

DIFFERENT_SHAPES = "batches of different clients may have different shapes"


@dataclass(frozen=True)
class EngineChoice:
    """The engine of a run with its options, and the reason for choosing it."""

    name: Literal["serial", "pool", "batched"]
    reason: str
    workers: int = 1
    chunk: int = 0
    """Clients per stack; 0 if clients are not stacked."""
    stack: Stack | None = None

    def build(self, runner: ClientRunner) -> Engine:
        """Return a new engine of this kind that runs the clients of ``runner``."""
        if self.stack is not None:
            return BatchedEngine(runner, self.stack, chunk=self.chunk, workers=self.workers)
        return PoolEngine(runner, self.workers) if self.name == "pool" else SerialEngine(runner)

    def to_config(self) -> dict[str, Any]:
        """Return what the run folder records, so that a resumed run uses the same engine."""
        config = {"engine": self.name, "reason": self.reason}
        return {**config, "chunk": self.chunk} if self.chunk else config

    def __str__(self) -> str:
        details = [f"stacks of {pluralize(self.chunk, 'client')}"] if self.chunk else []
        details += [f"{self.workers} worker processes"] if self.workers > 1 else []
        return f"{self.name} ({', '.join(details)}): {self.reason}" if details else f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class Workload:
    """The properties of a run that its engine is selected by."""

    runner: ClientRunner
    steps: Sequence[int]
    """Local steps of each client."""
    cohort: int
    """Clients per round."""
    cores: int
    """Cores that this process may use."""

    @property
    def on_cpu(self) -> bool:
        return self.runner.model.device.type == "cpu"

    @property
    def processes(self) -> int:
        """Default number of worker processes; 1 if more are impossible or not worth starting."""
        possible = self.on_cpu and can_fork() and self.seconds >= MIN_SECONDS_TO_FORK
        return max(1, min(self.cores, self.cohort)) if possible else 1

    @property
    def client_steps(self) -> float:
        """Expected number of local steps of all clients over the whole run."""
        return self.runner.config.constants.rounds * self.cohort * sum(self.steps) / len(self.steps)

    @property
    def seconds(self) -> float:
        """Rough estimate of the duration of the whole run, in seconds, with one client after another."""
        return self.client_steps * (STEP_SECONDS + STEP_SECONDS_PER_PARAMETER * self.runner.model.vector.numel())

    @property
    def has_equal_batches(self) -> bool:
        """Whether the batches of all clients can be stacked."""
        return have_equal_shapes(list(self.runner.clients.values()), self.runner.config.batch_size)

    def chunk(self, workers: int) -> int:
        """Return the number of clients per stack, at most as many as fit, spread evenly over the workers."""
        inputs = sum(tensor.numel() for tensor in tensors_of(self.runner.first_batch()[0]))
        values_per_client = 4 * self.runner.model.vector.numel() + inputs
        limit = max(1, (NUMBERS_IN_CACHE if self.on_cpu else NUMBERS_IN_MEMORY) // values_per_client)
        stacks_per_worker = -(-self.cohort // (workers * limit))
        return -(-self.cohort // (workers * stacks_per_worker))


def select_engine(
    name: str, workload: Workload, *, workers: int | None = None, previous: Mapping[str, Any] | None = None
) -> EngineChoice:
    """Select an engine by name, or by the rule if ``name`` is ``auto``.

    Parameters
    ----------
    name
        ``auto``, ``serial``, ``pool`` or ``batched``.
    workload
        The properties of the run that the rule depends on.
    workers
        Number of worker processes; chosen automatically by default.
    previous
        The engine of a resumed run, as its folder recorded it (:meth:`EngineChoice.to_config`); it takes
        precedence over ``name``.

    Returns
    -------
    EngineChoice
        The engine. Instead of ``batched`` it is another one if the model cannot be stacked.

    Raises
    ------
    InvalidInput
        If there is no such engine, ``workers`` is below 1 or given for ``serial``, or ``pool`` is selected on an
        accelerator.
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
    if name != "batched":
        raise unknown("engine", name, ("serial", "pool", "batched"))
    if not workload.has_equal_batches:
        return _without_stack(workload, processes, DIFFERENT_SHAPES)
    try:
        stack = stack_model(workload.runner.model, workload.runner.config.loss, *_trial_batch(workload.runner))
    except Unstackable as error:
        return _without_stack(workload, processes, f"the model cannot be stacked: {error}")
    return EngineChoice("batched", reason, processes, chunk or workload.chunk(processes), stack)


def _by_rule(workload: Workload, processes: int) -> EngineChoice:
    model = workload.runner.model
    if workload.cohort == 1 or workload.client_steps < MIN_STEPS_TO_STACK:
        return EngineChoice(
            "serial", "one client takes part in a round" if workload.cohort == 1 else "the run is very short"
        )
    if not workload.on_cpu:
        return _by_name("batched", workload, 1, reason=f"stacked clients keep {model.device} busy")
    if (obstacle := _obstacle_to_stacks(workload)) is not None:
        return _without_stack(workload, processes, obstacle)
    stack = stack_linear(model, workload.runner.config.loss, *_trial_batch(workload.runner))
    if stack is None:
        return _without_stack(workload, processes, "only linear layers with ReLU are faster stacked on a CPU")
    reason = "small linear layers are faster stacked"
    return EngineChoice("batched", reason, processes, workload.chunk(processes), stack)


def _obstacle_to_stacks(workload: Workload) -> str | None:
    """Return why clients are not stacked on a CPU, whatever their layers; ``None`` if nothing prevents it."""
    model = workload.runner.model
    if model.personal_names:
        return "models with personal layers are not stacked"
    if len(set(workload.steps)) * 2 > workload.cohort:
        return "few clients take equally many steps"
    if model.vector.numel() > MAX_PARAMETERS_BY_HAND:
        return f"{model.vector.numel():,} parameters are too many to stack on a CPU"
    return None if workload.has_equal_batches else DIFFERENT_SHAPES


def _without_stack(workload: Workload, processes: int, reason: str) -> EngineChoice:
    """Return ``pool``, or ``serial`` if there is one process; ``reason`` says why clients are not stacked."""
    if processes > 1:
        return EngineChoice("pool", reason, processes)
    if not workload.on_cpu:
        why = "pool runs on the CPU only"
    elif workload.cores == 1:
        why = "there is one core"
    elif not can_fork():
        why = "worker processes need Linux"
    else:
        why = "too little work for several processes" if workload.processes == 1 else "the run may use only one process"
    return EngineChoice("serial", f"{reason}, and {why}")


def _trial_batch(runner: ClientRunner) -> tuple[Batch, bool]:
    """Return a batch to try a stack on, and whether all targets are class labels."""
    return runner.first_batch(), all(
        isinstance(samples, TensorSamples) and not samples.y.is_floating_point() and int(samples.labels().min()) >= 0
        for samples in runner.clients.values()
    )
