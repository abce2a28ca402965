"""Serial: one client after another, so that each client's seconds are its own. The reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedtaco.engines.base import Results
from fedtaco.local import Assignment, Job, Worker
from fedtaco.methods import Method


@dataclass(frozen=True)
class SerialEngine:
    """Runs every client on one worker."""

    worker: Worker

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        results = Results(jobs)
        for job in jobs:
            results.put(job.row, self.worker.run(method, assignment, job), method)
        return results

    def close(self) -> None:
        pass
