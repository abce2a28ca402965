"""The contract of engines."""

from collections.abc import Sequence
from typing import Protocol

from fedtaco.cohort import ClientJob, CohortResults, Instructions
from fedtaco.methods import Method


class Engine(Protocol):
    """Runs the clients of a cohort. All engines give the same results, ``batched`` up to rounding errors."""

    def run(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> CohortResults:
        """Run the clients of a cohort.

        Parameters
        ----------
        method
            The method whose hooks the clients call.
        instructions
            What the server sends to the cohort.
        jobs
            One job per client of the cohort.

        Returns
        -------
        CohortResults
            The results of all jobs.
        """
        ...

    def close(self) -> None:
        """Release processes and memory; the next call of :meth:`run` starts them again."""
        ...
