"""The batched engine: trains stacks of clients in one computation each, spread over worker processes."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.engines.workers import WorkerPool
from fedtaco.methods import Method
from fedtaco.models import Stack


class BatchedEngine:
    """Runs clients with the same number of steps together.

    Parameters
    ----------
    runner
        Trains the clients.
    stack
        Computes the gradients of several copies of the model at once.
    chunk
        Maximum number of clients in a stack.
    workers
        Number of worker processes; with 1, everything is computed in this process.
    """

    def __init__(self, runner: ClientRunner, stack: Stack, *, chunk: int, workers: int) -> None:
        self.runner, self.stack, self.chunk = runner, stack, chunk
        self.pool = WorkerPool(runner, self._run_stacked, workers) if workers > 1 else None

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        chunks = _chunks(jobs, self.chunk)
        if self.pool is not None:
            return self.pool.run(method, instructions, chunks)
        results = CohortResults.empty(jobs)
        for chunk in chunks:
            for job, result in zip(chunk, self._run_stacked(method, instructions, chunk), strict=True):
                results.put(job, result)
        return results

    def close(self) -> None:
        if self.pool is not None:
            self.pool.stop()

    def _run_stacked(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> list[ClientResult]:
        return self.runner.run_stacked(method, instructions, jobs, self.stack)


def _chunks(jobs: Sequence[ClientJob], size: int) -> list[list[ClientJob]]:
    """Split each group of clients with the same number of steps into chunks of nearly equal size, most steps first."""
    chunks = []
    for _, group in groupby(sorted(jobs, key=lambda job: (-job.steps, job.row)), key=lambda job: job.steps):
        same_steps = list(group)
        count = -(-len(same_steps) // size)
        edges = [len(same_steps) * place // count for place in range(count + 1)]
        chunks += [same_steps[start:end] for start, end in pairwise(edges)]
    return chunks
