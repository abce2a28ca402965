"""The pool engine: spreads the clients of a cohort over worker processes, with exactly the results of ``serial``."""

from collections.abc import Sequence

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.engines.workers import WorkerPool
from fedtaco.methods import Method


class PoolEngine:
    """Runs one client at a time in each worker process; clients with the most steps start first."""

    def __init__(self, runner: ClientRunner, workers: int) -> None:
        self.runner = runner
        self.pool = WorkerPool(runner, self._run_each, workers)

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        longest_first = sorted(jobs, key=lambda job: (-job.steps, job.row))
        return self.pool.run(method, instructions, [[job] for job in longest_first])

    def close(self) -> None:
        self.pool.stop()

    def _run_each(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> list[ClientResult]:
        return [self.runner.run(method, instructions, job) for job in jobs]
