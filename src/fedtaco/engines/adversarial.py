"""Around any engine: freeloaders forge their uploads instead of training, attackers change theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedtaco.client import ClientRunner, dry_run
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.engines.base import Engine
from fedtaco.methods import Method, NamedTensors
from fedtaco.trust import AdversarialClients

Memories = Mapping[int, NamedTensors]
"""What each adversary remembers of the rounds it took part in."""


@dataclass(frozen=True)
class AdversarialEngine:
    """Runs the clients that train on ``engine``, and makes up what the others send."""

    engine: Engine
    runner: ClientRunner
    adversaries: AdversarialClients

    def run(
        self, method: Method, instructions: Instructions, jobs: Sequence[ClientJob], memories: Memories
    ) -> tuple[CohortResults, Memories]:
        """Run the jobs; return their results and the new memories of the adversaries."""
        rounds = self.runner.config.constants.rounds
        freeloads = self.adversaries.behaviour.freeloads(instructions.round, rounds)
        freeloaders = self.adversaries.clients if freeloads else frozenset[int]()
        results = CohortResults.empty(jobs)
        training = [job for job in jobs if job.client not in freeloaders]
        if training:
            self._train(method, instructions, training, memories, results)
        self._forge(method, instructions, [job for job in jobs if job.client in freeloaders], memories, results)
        if instructions.phase == "survey":
            return results, memories
        start = instructions.broadcast.start
        present = [job.client for job in jobs if job.client in self.adversaries.clients]
        seen = {client: self.adversaries.remember(start, memories.get(client, {})) for client in present}
        return results, {**memories, **seen}

    def _train(
        self,
        method: Method,
        instructions: Instructions,
        jobs: Sequence[ClientJob],
        memories: Memories,
        results: CohortResults,
    ) -> None:
        sent, rows = instructions.broadcast, torch.tensor([job.row for job in jobs])
        scalars = {name: values[rows] for name, values in sent.scalars.items()}
        renumbered = [replace(job, row=row) for row, job in enumerate(jobs)]
        trained = self.engine.run(method, replace(instructions, broadcast=replace(sent, scalars=scalars)), renumbered)
        for row, job in enumerate(jobs):
            upload = {name: vectors[row] for name, vectors in trained.vectors.items()}
            if job.client in self.adversaries.clients and instructions.phase == "train":
                memory = memories.get(job.client, {})
                upload["update"] = self.adversaries.change_update(
                    job.client, instructions.round, sent.start, memory, upload["update"]
                )
            client = job.client
            result = ClientResult(upload, trained.memories[client], trained.buffers[row], trained.seconds[client])
            results.put(job, result)

    def _forge(
        self,
        method: Method,
        instructions: Instructions,
        jobs: Sequence[ClientJob],
        memories: Memories,
        results: CohortResults,
    ) -> None:
        """Make up an update for each job; whatever else the method uploads is zero."""
        if not jobs:
            return
        start, number = instructions.broadcast.start, instructions.round
        template, _ = dry_run(method, instructions, self.runner.config.constants, jobs[0].memory)
        zeros = {name: torch.zeros_like(tensor) for name, tensor in template.items()}
        for job in jobs:
            upload = zeros
            if instructions.phase == "train":
                forged = self.adversaries.forge(job.client, number, start, memories.get(job.client, {}))
                upload = {**zeros, "update": forged}
            results.put(job, ClientResult(upload, job.memory, instructions.buffers, seconds=None))
