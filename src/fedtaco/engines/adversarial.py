"""An engine for simulated adversaries, which wraps any other engine.

Freeloaders forge their uploads instead of training; attackers train and change their updates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedtaco.client import ClientRunner, dry_run
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.engines.base import Engine
from fedtaco.methods import Method, NamedTensors
from fedtaco.trust import AdversarialClients

Memories = Mapping[int, NamedTensors]
"""What each adversary remembers of the rounds it took part in, by client."""


@dataclass(frozen=True)
class AdversarialEngine:
    """Runs the clients that train on ``engine``, and forges the uploads of freeloaders."""

    engine: Engine
    runner: ClientRunner
    adversaries: AdversarialClients

    def run(
        self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob], memories: Memories
    ) -> CohortResults:
        """Run the clients of a cohort.

        Parameters
        ----------
        method, instructions, jobs
            As in :meth:`Engine.run`.
        memories
            What the adversaries remember of earlier rounds.

        Returns
        -------
        CohortResults
            The results of all jobs, with what the adversaries of the cohort remember after this round.
        """
        if not self.adversaries.clients:
            return self.engine.run(method, instructions, jobs)
        adversaries, start, number = self.adversaries, instructions.broadcast.start, instructions.round
        freeloads = adversaries.behaviour.freeloads(number, self.runner.config.constants.rounds)
        freeloading = [job for job in jobs if freeloads and job.client in adversaries.clients]
        training = [job for job in jobs if job not in freeloading]
        is_training = instructions.phase == "train"
        results = CohortResults.empty(jobs)
        for job, result in self._train(method, instructions, training):
            upload = dict(result.upload)
            if is_training and job.client in adversaries.clients:
                memory = memories.get(job.client, {})
                upload["update"] = adversaries.change_update(job.client, number, start, memory, upload["update"])
            results.put(job, replace(result, upload=upload))
        zeros = self._zero_upload(method, instructions, freeloading)
        for job in freeloading:
            memory = memories.get(job.client, {})
            forged = {"update": adversaries.forge(job.client, number, start, memory)} if is_training else {}
            results.put(job, ClientResult({**zeros, **forged}, job.memory, instructions.buffers, seconds=None))
        if is_training:
            present = [job.client for job in jobs if job.client in adversaries.clients]
            results.adversary_memories = {
                client: adversaries.remember(start, memories.get(client, {})) for client in present
            }
        return results

    def _train(
        self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]
    ) -> list[tuple[ClientJob, ClientResult]]:
        """Run some jobs of a cohort on the wrapped engine, which expects consecutive rows from 0."""
        if not jobs:
            return []
        renumbered = [replace(job, row=row) for row, job in enumerate(jobs)]
        done = self.engine.run(method, instructions.for_rows([job.row for job in jobs]), renumbered)
        uploads = [{name: matrix[row] for name, matrix in done.vectors.items()} for row in range(len(jobs))]
        results = []
        for job, upload, buffers in zip(jobs, uploads, done.buffers, strict=True):
            seconds, training_loss = done.seconds[job.client], done.training_losses[job.client]
            results.append((job, ClientResult(upload, done.memories[job.client], buffers, seconds, training_loss)))
        return results

    def _zero_upload(self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob]) -> NamedTensors:
        """Return an upload of zeros, in which a freeloader replaces only the update."""
        if not jobs:
            return {}
        template, _ = dry_run(method, instructions, self.runner.config.constants, jobs[0].memory)
        return {name: torch.zeros_like(tensor) for name, tensor in template.items()}
