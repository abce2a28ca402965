"""What one client does in a round: the only training loop there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from fedtaco.data import Samples, batch_plan
from fedtaco.methods import Broadcast, Local, Memory, Method, Setting
from fedtaco.models import FlatModel, Loss
from fedtaco.randomness import generator, torch_seed

FULL_PASS_BATCH = 1024


@dataclass(frozen=True)
class Plan:
    """What all clients of a run share: constants, batch size, loss and seed."""

    setting: Setting
    batch_size: int
    loss: Loss
    seed: int


@dataclass(frozen=True)
class Assignment:
    """What a cohort is asked to do in a round, and what it is sent for it."""

    phase: Literal["survey", "train"]
    round: int
    broadcast: Broadcast
    buffers: Tensor


@dataclass(frozen=True)
class Job:
    """One client's part in an assignment; ``row`` is its place in the cohort."""

    row: int
    client: int
    steps: int
    memory: Memory


@dataclass(frozen=True)
class Reply:
    """What a client sends back, what it remembers, and the seconds it computed."""

    upload: Memory
    memory: Memory
    buffers: Tensor
    seconds: float


@dataclass(frozen=True)
class Worker:
    """Does the work of any client, one at a time, on one model."""

    model: FlatModel
    clients: Sequence[Samples]
    plan: Plan

    def warm_up(self) -> None:
        """One gradient, so that no client's clock counts torch's first-time costs."""
        samples, point = self.clients[0], self.model.vector
        self.model.module.train()
        batch = samples.batch(torch.arange(min(len(samples), self.plan.batch_size)))
        with torch.random.fork_rng(devices=[]):
            self.model.gradient(point, batch, self.plan.loss, seed=0)

    def run(self, method: Method, assignment: Assignment, job: Job) -> Reply:
        client = _ClientAtWork(self, assignment, job)
        try:
            with torch.no_grad():
                return client.survey(method) if assignment.phase == "survey" else client.train(method)
        except Exception as error:
            error.add_note(f"This happened to client {job.client} in round {assignment.round} of {method.name}.")
            raise


class _ClientAtWork:
    """One client in one round. Its clock excludes the fetching of samples."""

    def __init__(self, worker: Worker, assignment: Assignment, job: Job) -> None:
        self.model, self.plan = worker.model, worker.plan
        self.samples = worker.clients[job.client]
        self.job, self.round = job, assignment.round
        self.first_draw = torch_seed(self.plan.seed, "dropout", job.client, self.round)
        self.model.load(assignment.broadcast.start, assignment.buffers)
        self.model.module.train()
        own_numbers = {name: column[job.row] for name, column in assignment.broadcast.scalars.items()}
        self.local = Local(
            setting=self.plan.setting,
            start=assignment.broadcast.start,
            received={**assignment.broadcast.vectors, **own_numbers},
            memory=job.memory,
            steps=job.steps,
            gradient=self.gradient,
            full_gradient=self.full_gradient,
        )

    def train(self, method: Method) -> Reply:
        """K steps ``x <- x - local_lr * direction`` from the broadcast's start."""
        x, local = self.model.vector, self.local
        rng = generator(self.plan.seed, "batches", self.job.client, self.round)
        batches = batch_plan(rng, len(self.samples), self.job.steps, self.plan.batch_size)
        began = perf_counter()
        local.correction = method.correction(local)
        seconds = perf_counter() - began
        for local.step, indices in enumerate(batches):
            self.batch = self.samples.batch(indices)
            began = perf_counter()
            x.sub_(method.direction(x, local), alpha=self.plan.setting.local_lr)
            seconds += perf_counter() - began
        began = perf_counter()
        upload, memory = method.finish(local.start - x, local)
        seconds += perf_counter() - began
        return Reply(upload, memory, self.model.buffers.clone(), seconds)

    def survey(self, method: Method) -> Reply:
        """No step: an answer about the broadcast model."""
        began = perf_counter()
        answer = method.survey(self.local)
        return Reply(answer, self.job.memory, self.model.buffers.clone(), perf_counter() - began)

    def gradient(self, point: Tensor) -> Tensor:
        with torch.enable_grad():
            return self.model.gradient(point, self.batch, self.plan.loss, self.first_draw + self.local.step)

    def full_gradient(self, point: Tensor) -> Tensor:
        count = len(self.samples)
        total = torch.zeros_like(point)
        for part in torch.split(torch.arange(count), FULL_PASS_BATCH):
            with torch.enable_grad():
                gradient = self.model.gradient(point, self.samples.batch(part), self.plan.loss, self.first_draw)
            total += gradient * (len(part) / count)
        return total
