"""The contract of engines."""

from collections.abc import Sequence
from typing import Protocol

from fedtaco.cohort import ClientJob, CohortResults, Instructions
from fedtaco.methods import Method


class Engine(Protocol):
    """Runs the clients of a cohort; the result never depends on the engine."""

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        """Run the jobs and return their results with decoded uploads."""
        ...

    def close(self) -> None:
        """Release processes and memory; the next call of :meth:`run` starts them again."""
        ...
