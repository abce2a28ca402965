"""Around any engine: what freeloaders send is made up instead of trained, what attackers send is spoilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedtaco.engines.base import Engine, Results
from fedtaco.local import Assignment, Job, Reply, Worker, rehearse
from fedtaco.methods import Memory, Method
from fedtaco.trust import Misfits

OWN = "misfit."
"""Begins the names of what misbehaving clients remember beside the method's own memory."""


@dataclass(frozen=True)
class MisbehavingEngine:
    """Runs the clients that work on ``engine``."""

    engine: Engine
    worker: Worker
    misfits: Misfits

    def run(self, method: Method, assignment: Assignment, jobs: Sequence[Job]) -> Results:
        rides = self.misfits.behaviour.rides(assignment.round, self.worker.plan.setting.rounds)
        riders = self.misfits.clients if rides else frozenset()
        riding = [job for job in jobs if job.client in riders]
        working = [job for job in jobs if job.client not in riders]
        results = Results(jobs)
        if working:
            self._work(method, assignment, working, results)
        if riding:
            self._ride(method, assignment, riding, results)
        return results

    def close(self) -> None:
        self.engine.close()

    def _work(self, method: Method, assignment: Assignment, jobs: Sequence[Job], results: Results) -> None:
        rows = torch.tensor([job.row for job in jobs])
        sent = assignment.broadcast
        scalars = {name: values[rows] for name, values in sent.scalars.items()}
        renumbered = [replace(job, row=row, memory=_of_method(job.memory)) for row, job in enumerate(jobs)]
        done = self.engine.run(method, replace(assignment, broadcast=replace(sent, scalars=scalars)), renumbered)
        for row, job in enumerate(jobs):
            upload = {name: vectors[row] for name, vectors in done.vectors.items()}
            memory = done.memories[row]
            if job.client in self.misfits.clients and assignment.phase == "train":
                spoilt = self.misfits.spoil(job.client, assignment.round, upload["update"])
                upload, memory = {**upload, "update": spoilt}, self._having_seen(assignment, job, memory)
            results.place(job.row, Reply(upload, memory, done.buffers[row], done.seconds[row]))

    def _ride(self, method: Method, assignment: Assignment, jobs: Sequence[Job], results: Results) -> None:
        """A made-up update; what else a client would send is zero."""
        expected, _ = rehearse(method, assignment, self.worker.plan.setting, _of_method(jobs[0].memory))
        nothing = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
        for job in jobs:
            upload, memory = nothing, job.memory
            if assignment.phase == "train":
                start, seen = assignment.broadcast.start, _own(job.memory)
                made_up = self.misfits.make_up(job.client, assignment.round, start, seen)
                upload, memory = {**nothing, "update": made_up}, self._having_seen(assignment, job, job.memory)
            results.place(job.row, Reply(upload, memory, assignment.buffers, seconds=None))

    def _having_seen(self, assignment: Assignment, job: Job, memory: Memory) -> Memory:
        seen = self.misfits.remember(assignment.broadcast.start, _own(job.memory))
        return {**memory, **{OWN + name: tensor for name, tensor in seen.items()}}


def _own(memory: Memory) -> Memory:
    return {name.removeprefix(OWN): tensor for name, tensor in memory.items() if name.startswith(OWN)}


def _of_method(memory: Memory) -> Memory:
    return {name: tensor for name, tensor in memory.items() if not name.startswith(OWN)}
