"""Pool: the clients of a cohort side by side on worker processes, to the last bit as ``serial``."""

from __future__ import annotations

from collections.abc import Sequence

from fedtaco.engines.base import Results
from fedtaco.engines.crew import Crews
from fedtaco.local import Assignment, Job, Reply, Worker
from fedtaco.methods import Method


class PoolEngine:
    """One client at a time on each worker, those with most steps first."""

    def __init__(self, worker: Worker, workers: int) -> None:
        self.worker = worker
        self.crews = Crews(worker, self._run_each, workers)

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        longest_first = sorted(jobs, key=lambda job: (-job.steps, job.row))
        return self.crews.run(method, assignment, [[job] for job in longest_first])

    def close(self) -> None:
        self.crews.dismiss()

    def _run_each(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> list[Reply]:
        return [self.worker.run(method, assignment, job) for job in jobs]
