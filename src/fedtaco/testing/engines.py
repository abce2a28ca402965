"""Engines for the contract of methods: such as those that run clients in reverse order or serialise messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from safetensors.torch import load as from_bytes, save as to_bytes
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.engines import BatchedEngine, PoolEngine, SerialEngine
from fedtaco.methods import Broadcast, Method, NamedTensors
from fedtaco.models import stack_model
from fedtaco.testing.small_federation import SAMPLES


class ReversedEngine(SerialEngine):
    """Runs the last client first."""

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        return super().run(method, instructions, jobs[::-1])


class WireEngine(SerialEngine):
    """Converts every broadcast and upload to bytes and back, as a network does."""

    def run_client(self, method: Method, instructions: Instructions, job: ClientJob) -> ClientResult:
        sent = instructions.broadcast
        start = through_bytes({"start": sent.start})["start"]
        broadcast = Broadcast(start, through_bytes(sent.vectors), through_bytes(sent.scalars))
        result = super().run_client(method, replace(instructions, broadcast=broadcast), job)
        return replace(result, upload=through_bytes(result.upload))


@dataclass
class CostCounter:
    """Counts what clients compute, receive, remember and send, in the units of :class:`~fedtaco.methods.Cost`."""

    gradients: int = 0
    full_passes: int = 0
    down: int = 0
    scalars_down: int = 0
    vectors_kept: int = 0
    bytes_up: int = 0

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the cross entropy, and count a gradient: a full pass if the batch contains all samples of a client."""
        if torch.is_grad_enabled():
            self.gradients += len(target) < SAMPLES
            self.full_passes += len(target) == SAMPLES
        return cross_entropy(prediction, target)

    def engine(self, runner: ClientRunner) -> SerialEngine:
        """Return an engine that counts messages and memory."""
        return _CountingEngine(runner, self)


@dataclass(frozen=True)
class _CountingEngine(SerialEngine):
    counter: CostCounter

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        self.counter.down += 1 + len(instructions.broadcast.vectors)
        self.counter.scalars_down += len(instructions.broadcast.scalars)
        return super().run(method, instructions, jobs)

    def run_client(self, method: Method, instructions: Instructions, job: ClientJob) -> ClientResult:
        result = super().run_client(method, instructions, job)
        self.counter.bytes_up += sum(tensor.nbytes for tensor in result.upload.values())
        size = instructions.broadcast.start.numel()
        self.counter.vectors_kept += sum(tensor.numel() == size for tensor in result.memory.values())
        return result


def two_workers(runner: ClientRunner) -> PoolEngine:
    """Return an engine with two worker processes."""
    return PoolEngine(runner, workers=2)


def one_stack(runner: ClientRunner) -> BatchedEngine:
    """Return an engine that trains all clients in one computation."""
    stack = stack_model(runner.model, runner.config.loss, runner.first_batch(), plain_labels=True)
    return BatchedEngine(runner, stack, chunk=len(runner.clients), workers=1)


def through_bytes(named: NamedTensors) -> dict[str, Tensor]:
    """Convert named tensors to bytes and back."""
    return from_bytes(to_bytes({name: tensor.contiguous() for name, tensor in named.items()}))
