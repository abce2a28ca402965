"""Batched: many clients in one computation, in chunks that are spread over worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from fedtaco.engines.base import Results
from fedtaco.engines.crew import Crews
from fedtaco.local import Assignment, Job, Reply, Worker
from fedtaco.methods import Method
from fedtaco.models import Stack


class BatchedEngine:
    """Stacks of at most ``chunk`` clients that take equally many steps.

    With one worker, or on an accelerator, all is done in this process.
    """

    def __init__(self, worker: Worker, stack: Stack, *, chunk: int, workers: int) -> None:
        self.worker, self.stack, self.chunk = worker, stack, chunk
        self.crews = Crews(worker, self._run_stacked, workers) if workers > 1 else None

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        chunks = _chunks(jobs, self.chunk)
        if self.crews is not None:
            return self.crews.run(method, assignment, chunks)
        results = Results(jobs)
        for chunk in chunks:
            for job, reply in zip(chunk, self._run_stacked(method, assignment, chunk), strict=True):
                results.put(job.row, reply, method)
        return results

    def close(self) -> None:
        if self.crews is not None:
            self.crews.dismiss()

    def _run_stacked(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> list[Reply]:
        return self.worker.run_stacked(method, assignment, jobs, self.stack)


def _chunks(jobs: Sequence[Job], size: int) -> list[list[Job]]:
    """Clients with equally many steps together, most steps first, in chunks of nearly equal size."""
    chunks = []
    for _, alike in groupby(sorted(jobs, key=lambda job: (-job.steps, job.row)), key=lambda job: job.steps):
        group = list(alike)
        count = -(-len(group) // size)
        edges = [len(group) * place // count for place in range(count + 1)]
        chunks += [group[start:end] for start, end in pairwise(edges)]
    return chunks
