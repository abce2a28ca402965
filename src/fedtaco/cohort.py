"""What the server and the clients of a round exchange, in every engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fedtaco.methods import Broadcast, Constants, LocalContext, NamedTensors

Phase = Literal["survey", "train"]


@dataclass(frozen=True)
class Traffic:
    """Bytes that the clients of a cohort sent and received."""

    up: int = 0
    down: int = 0
    wire_up: int | None = None
    """Size of the messages that were sent, with headers; ``None`` in a simulation, which has no messages."""
    wire_down: int | None = None
    """The same for the messages that were received."""

    def __add__(self, other: Traffic) -> Traffic:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Traffic(*(one if two is None else two + (one or 0) for one, two in pairs))


@dataclass(frozen=True)
class Instructions:
    """What the server asks a cohort to do in one phase of a round, and the data for it."""

    phase: Phase
    round: int
    broadcast: Broadcast
    buffers: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that one client receives: vectors, buffers and its scalars."""
        sent = self.broadcast
        vectors = (sent.start, self.buffers, *sent.vectors.values())
        return sum(tensor.nbytes for tensor in vectors) + sum(column.itemsize for column in sent.scalars.values())

    def for_rows(self, rows: Sequence[int]) -> Instructions:
        """Return the instructions for the clients in some rows of the cohort."""
        scalars = {name: column[list(rows)] for name, column in self.broadcast.scalars.items()}
        return replace(self, broadcast=replace(self.broadcast, scalars=scalars))

    def context_without_samples(
        self, row: int, constants: Constants, memory: NamedTensors, steps: int = 1
    ) -> LocalContext:
        """Return what a method's client hooks receive, for the client in this row of the cohort; gradients are zero."""
        return LocalContext(
            constants=constants,
            start=self.broadcast.start,
            received=self.broadcast.received_by(row),
            memory=memory,
            steps=steps,
            gradient=torch.zeros_like,
            full_gradient=torch.zeros_like,
        )


@dataclass(frozen=True)
class ClientJob:
    """The work of one client in a round."""

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
    training_loss: float | None = None
    """Mean loss over the batches of the local steps, each before its step; ``None`` if unknown or not finite."""


@dataclass
class CohortResults:
    """What a cohort returned: one row per client in each matrix, in the order of the cohort."""

    cohort: list[int]
    """All clients that were asked."""
    clients: Tensor
    """The client of each row; fewer than ``cohort`` once uploads are dropped."""
    steps: Tensor
    shares: Tensor
    """Weights given by the run's weighting, uniform or by number of samples; they sum to 1."""
    coverage: float = 1.0
    """Weight of these clients among all that are not expelled: 1 if all of them are here."""
    vectors: dict[str, Tensor] = field(default_factory=dict)
    buffers: Tensor = field(default_factory=lambda: torch.empty(0))
    memories: dict[int, NamedTensors] = field(default_factory=dict)
    """Memory of each client after the round, where the server knows it."""
    seconds: dict[int, float | None] = field(default_factory=dict)
    training_losses: dict[int, float | None] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    """Clients whose upload is not used, with the reason."""
    traffic: Traffic = Traffic()
    simulated_duration: float | None = None
    """Simulated time until the last answer; ``None`` if clients are real."""
    adversary_memories: Mapping[int, NamedTensors] = field(default_factory=dict)
    """What simulated adversaries remember after the round, by client."""

    @classmethod
    def empty(cls, jobs: Sequence[ClientJob]) -> CohortResults:
        """Return results for these jobs, given in any order; :meth:`put` fills in the uploads."""
        ordered = sorted(jobs, key=lambda job: job.row)
        cohort = [job.client for job in ordered]
        steps, counts = torch.tensor([job.steps for job in ordered]), [job.count for job in ordered]
        return cls(cohort, torch.tensor(cohort), steps, normalize(counts))

    @classmethod
    def unanswered(cls, reasons: Mapping[int, str]) -> CohortResults:
        """Return the results of a cohort of which nobody answered, given the reason for each client."""
        nobody = torch.empty(0, dtype=torch.int64)
        return cls(list(reasons), nobody, nobody, nobody.double(), coverage=0.0, dropped=dict(reasons))

    def put(self, job: ClientJob, result: ClientResult) -> None:
        """Store the result of a job."""
        for name, tensor in result.upload.items():
            self.vectors[name] = self._allocate(self.vectors.get(name), tensor)
            self.vectors[name][job.row] = tensor
        self.buffers = self._allocate(self.buffers, result.buffers)
        self.buffers[job.row] = result.buffers
        self.memories[job.client] = result.memory
        self.seconds[job.client], self.training_losses[job.client] = result.seconds, result.training_loss

    def drop(self, reasons: Mapping[int, str]) -> None:
        """Drop the uploads in the rows that are the keys of ``reasons``.

        The remaining rows of ``vectors`` are moved up in place, so that the matrices are not copied.
        """
        if not reasons:
            return
        self.dropped |= {int(self.clients[row]): reason for row, reason in reasons.items()}
        kept = [row for row in range(len(self.clients)) if row not in reasons]
        for name, matrix in self.vectors.items():
            for target, row in enumerate(kept):
                if target != row:
                    matrix[target].copy_(matrix[row])
            self.vectors[name] = matrix[: len(kept)]
        self.clients, self.steps, self.buffers = self.clients[kept], self.steps[kept], self.buffers[kept]
        shares = self.shares[kept]
        self.shares, self.coverage = shares / shares.sum(), self.coverage * float(shares.sum())

    def _allocate(self, matrix: Tensor | None, row: Tensor) -> Tensor:
        """Return ``matrix``, or zeros with one row per client of the cohort if it does not exist yet."""
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
    """Return the clients of some jobs as text, such as "clients 3, 5"."""
    return ("client " if len(jobs) == 1 else "clients ") + ", ".join(str(job.client) for job in jobs)
