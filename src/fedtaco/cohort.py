"""What passes between the server and the clients of a round, whichever engine runs the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedtaco.methods import Broadcast, NamedTensors

Phase = Literal["survey", "train"]


@dataclass(frozen=True)
class Instructions:
    """What the server asks of a cohort in a round, and what it sends along."""

    phase: Phase
    round: int
    broadcast: Broadcast
    buffers: Tensor


@dataclass(frozen=True)
class ClientJob:
    """The part of one client in a round."""

    row: int
    """Position of the client in the cohort."""
    client: int
    steps: int
    memory: NamedTensors
    count: float = 1.0
    """Weight of the upload before normalisation: 1, or the number of samples."""


@dataclass(frozen=True)
class ClientResult:
    """What one client returns."""

    upload: NamedTensors
    memory: NamedTensors
    """What the client remembers after the round."""
    buffers: Tensor
    seconds: float | None
    """Seconds of computation; ``None`` if several clients were computed at once."""


@dataclass
class CohortResults:
    """What a cohort returned: one row per client in each matrix, in the order of the cohort."""

    cohort: list[int]
    """All clients that were asked."""
    clients: Tensor
    """The clients whose rows follow; fewer than the cohort once uploads are dropped."""
    steps: Tensor
    shares: Tensor
    """Normalised weights by the run's weighting, uniform or by samples."""
    vectors: dict[str, Tensor] = field(default_factory=dict)
    buffers: Tensor = field(default_factory=lambda: torch.empty(0))
    memories: dict[int, NamedTensors] = field(default_factory=dict)
    """Memory of each client after the round, where the server knows it."""
    seconds: dict[int, float | None] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    """Clients whose upload is not used, with the reason."""

    @classmethod
    def empty(cls, jobs: Sequence[ClientJob]) -> CohortResults:
        """Return results for these jobs, in any order, that are yet to be filled in."""
        ordered = sorted(jobs, key=lambda job: job.row)
        cohort = [job.client for job in ordered]
        steps, counts = torch.tensor([job.steps for job in ordered]), [job.count for job in ordered]
        return cls(cohort, torch.tensor(cohort), steps, normalize(counts))

    def put(self, job: ClientJob, result: ClientResult, decoded: NamedTensors) -> None:
        """Store the result of a job; ``decoded`` is its upload as full vectors."""
        for name, tensor in decoded.items():
            self.vectors[name] = self._matrix(self.vectors.get(name), tensor)
            self.vectors[name][job.row] = tensor
        self.buffers = self._matrix(self.buffers, result.buffers)
        self.buffers[job.row] = result.buffers
        self.memories[job.client], self.seconds[job.client] = result.memory, result.seconds

    def drop(self, rows: Tensor, reasons: Mapping[int, str]) -> None:
        """Remove the rows of a boolean mask; ``reasons`` says why, by client.

        The remaining rows are moved together inside the same matrices, so that no second copy is made.
        """
        if not rows.any():
            return
        self.dropped |= {client: reasons[client] for client in self.clients[rows].tolist()}
        kept = torch.nonzero(~rows).flatten().tolist()
        for name, matrix in self.vectors.items():
            for place, row in enumerate(kept):
                if place != row:
                    matrix[place].copy_(matrix[row])
            self.vectors[name] = matrix[: len(kept)]
        self.clients, self.steps, self.buffers = self.clients[kept], self.steps[kept], self.buffers[kept]
        shares = self.shares[kept]
        self.shares = shares / shares.sum()

    def _matrix(self, matrix: Tensor | None, row: Tensor) -> Tensor:
        if matrix is None or len(matrix) == 0:
            return row.new_zeros(len(self.cohort), *row.shape)
        return matrix


def normalize(counts: Sequence[float]) -> Tensor:
    """Return weights in proportion to ``counts`` that sum to 1.

    >>> normalize([1, 3])
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    shares = torch.tensor(counts, dtype=torch.float64)
    return shares / shares.sum()


def describe_clients(jobs: Sequence[ClientJob]) -> str:
    """Name the clients of some jobs, as in "clients 3, 5"."""
    return ("client " if len(jobs) == 1 else "clients ") + ", ".join(str(job.client) for job in jobs)
