"""Engines that try a method: in another order, over a wire, and with a tally of what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedtaco.engines import Engine, Results, SerialEngine
from fedtaco.local import Assignment, Job, Worker
from fedtaco.methods import Broadcast, Memory, Method
from fedtaco.testing.small import SAMPLES


class Backwards(SerialEngine):
    """Runs the last client first."""

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        return super().run(method, assignment, jobs[::-1])


class OverTheWire(SerialEngine):
    """Sends every message through bytes."""

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        sent = assignment.broadcast
        start = through_bytes({"start": sent.start})["start"]
        broadcast = Broadcast(start, through_bytes(sent.vectors), through_bytes(sent.scalars))
        results = Results(jobs)
        for job in jobs:
            reply = self.worker.run(method, replace(assignment, broadcast=broadcast), job)
            results.put(job.row, replace(reply, upload=through_bytes(reply.upload)), method)
        return results


@dataclass
class Tally:
    """Counts what clients compute, receive, keep and send."""

    gradients: int = 0
    full_passes: int = 0
    down: int = 0
    scalars_down: int = 0
    vectors_kept: int = 0
    bytes_up: int = 0

    def loss(self, prediction: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.gradients += len(target) < SAMPLES
            self.full_passes += len(target) == SAMPLES
        return cross_entropy(prediction, target)

    def engine(self, worker: Worker) -> Engine:
        return _Watched(worker, self)


@dataclass(frozen=True)
class _Watched(SerialEngine):
    tally: Tally

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        self.tally.down += 1 + len(assignment.broadcast.vectors)
        self.tally.scalars_down += len(assignment.broadcast.scalars)
        results = Results(jobs)
        for job in jobs:
            reply = self.worker.run(method, assignment, job)
            self.tally.bytes_up += sum(tensor.nbytes for tensor in reply.upload.values())
            whole = (tensor.numel() == assignment.broadcast.start.numel() for tensor in reply.memory.values())
            self.tally.vectors_kept += sum(whole)
            results.put(job.row, reply, method)
        return results


def through_bytes(named: Memory) -> dict[str, Tensor]:
    return from_bytes(to_bytes({name: tensor.contiguous() for name, tensor in named.items()}))
