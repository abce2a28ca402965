"""Serial: one client after another, so that each client's seconds are its own. The reference for other engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, CohortResults, Instructions
from fedtaco.methods import Method


@dataclass(frozen=True)
class SerialEngine:
    """Runs one client after another in this process."""

    runner: ClientRunner

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        results = CohortResults.empty(jobs)
        for job in jobs:
            result = self.runner.run(method, instructions, job)
            results.put(job, replace(result, upload=method.decode(result.upload)))
        return results

    def close(self) -> None:
        pass
