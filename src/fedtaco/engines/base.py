"""What every engine takes and gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedtaco.local import Assignment, Job, Reply
from fedtaco.methods import Memory, Method


class Results:
    """The replies of a cohort, uploads gathered as rows of one matrix per name."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.count = len(jobs)
        self.vectors: dict[str, Tensor] = {}
        self.buffers = torch.empty(0)
        self.memories: list[Memory] = [job.memory for job in jobs]
        self.seconds: list[float | None] = [None] * self.count

    def put(self, row: int, reply: Reply, method: Method) -> None:
        """Take a reply as it came from the client."""
        self.place(row, replace(reply, upload=method.decode(reply.upload)))

    def place(self, row: int, reply: Reply) -> None:
        """Take a reply whose upload is full vectors."""
        for name, tensor in reply.upload.items():
            self.vectors[name] = self._rows(self.vectors.get(name), tensor)
            self.vectors[name][row] = tensor
        self.buffers = self._rows(self.buffers, reply.buffers)
        self.buffers[row] = reply.buffers
        self.memories[row] = reply.memory
        self.seconds[row] = reply.seconds

    def _rows(self, matrix: Tensor | None, like: Tensor) -> Tensor:
        return like.new_zeros(self.count, *like.shape) if matrix is None or len(matrix) == 0 else matrix


class Engine(Protocol):
    """Runs a cohort; the results stand in the order of the jobs."""

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results: ...

    def close(self) -> None:
        """Let go of what a run needed; the next run starts it anew."""
        ...
