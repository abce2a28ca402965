"""The serial engine: runs one client after another, so that each client can be timed exactly.

It is the reference for the other engines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.methods import Method


@dataclass(frozen=True)
class SerialEngine:
    """Runs one client after another in this process."""

    runner: ClientRunner

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        results = CohortResults.empty(jobs)
        for job in jobs:
            results.put(job, self.run_client(method, instructions, job))
        return results

    def run_client(self, method: Method, instructions: Instructions, job: ClientJob) -> ClientResult:
        """Run one client."""
        return self.runner.run(method, instructions, job)

    def close(self) -> None:
        pass
