"""What clients do in a round: the only training loop there is, for one client or for a stack of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from fedtaco.data import Samples, StackedBatches, batch_plan
from fedtaco.device import HOME, draw_from, wait_for
from fedtaco.methods import Broadcast, Local, Memory, Method, Setting
from fedtaco.models import FlatModel, Loss, Stack
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
    """What a client sends back, what it remembers, and the seconds it computed (``None`` where several did at once)."""

    upload: Memory
    memory: Memory
    buffers: Tensor
    seconds: float | None


@dataclass(frozen=True)
class Worker:
    """Does the work of any client on one model: one at a time, or several that take equally many steps at once."""

    model: FlatModel
    clients: Sequence[Samples]
    plan: Plan

    def warm_up(self) -> None:
        """One gradient, so that no client's clock counts torch's first-time costs."""
        self.model.module.train()
        with torch.random.fork_rng(devices=[]):
            self.model.gradient(self.model.vector, self.first_batch(), self.plan.loss, seed=0)

    def first_batch(self) -> tuple[Tensor, Tensor]:
        samples = self.clients[0]
        return self.model.adopt(samples.batch(torch.arange(self.plan.batch_size) % len(samples)))

    def run(self, method: Method, assignment: Assignment, job: Job) -> Reply:
        with _blaming([job], method, assignment):
            return _OneClient(self, assignment, job).reply(method)

    def run_stacked(self, method: Method, assignment: Assignment, jobs: Sequence[Job], stack: Stack) -> list[Reply]:
        with _blaming(jobs, method, assignment):
            return _StackOfClients(self, assignment, jobs, stack).replies(method)


class _Work(ABC):
    """A round's work, with vectors (d,) or (n, d)."""

    local: Local

    def __init__(self, worker: Worker, assignment: Assignment, steps: int) -> None:
        self.worker, self.model, self.plan = worker, worker.model, worker.plan
        self.assignment, self.steps = assignment, steps
        self.model.load(assignment.broadcast.start, assignment.buffers)
        self.model.module.train()
        self.start = assignment.broadcast.start.to(self.model.device)
        self.clock = _Clock(self.model.device)

    @abstractmethod
    def fetch(self, step: int) -> None:
        """Have the batch of a step at hand."""

    @abstractmethod
    def gradient(self, point: Tensor) -> Tensor: ...

    @abstractmethod
    def full_gradient(self, point: Tensor) -> Tensor: ...

    def has(self, numbers: Memory, memory: Memory) -> Local:
        """What the method's client hooks are given."""
        return Local(
            setting=self.plan.setting,
            start=self.start,
            received={**self.model.near(self.assignment.broadcast.vectors), **numbers},
            memory=self.model.near(memory),
            steps=self.steps,
            gradient=self.gradient,
            full_gradient=self.full_gradient,
        )

    def do(self, method: Method, x: Tensor) -> tuple[Memory, Memory]:
        """Train ``x``, or answer a survey: the upload and the new memory."""
        with torch.no_grad():
            if self.assignment.phase == "train":
                return self._train(method, x)
            with self.clock:
                return method.survey(self.local), self.local.memory

    def _train(self, method: Method, x: Tensor) -> tuple[Memory, Memory]:
        """K steps ``x <- x - local_lr * direction`` from the broadcast's start."""
        local = self.local
        with self.clock:
            local.correction = method.correction(local)
        for local.step in range(self.steps):
            self.fetch(local.step)
            with self.clock:
                x.sub_(method.direction(x, local), alpha=self.plan.setting.local_lr)
        with self.clock:
            return method.finish(local.start - x, local)

    def first_sample_draw(self, client: int) -> int:
        """What a dataset draws in the first step, as random crops are, follows from it; add one a step."""
        return torch_seed(self.plan.seed, "samples", client, self.assignment.round)

    def batches_of(self, client: int) -> Tensor:
        rng = generator(self.plan.seed, "batches", client, self.assignment.round)
        return batch_plan(rng, len(self.worker.clients[client]), self.steps, self.plan.batch_size)


class _OneClient(_Work):
    def __init__(self, worker: Worker, assignment: Assignment, job: Job) -> None:
        super().__init__(worker, assignment, job.steps)
        self.samples = worker.clients[job.client]
        self.batches = self.batches_of(job.client)
        self.sample_draw = self.first_sample_draw(job.client)
        self.first_draw = torch_seed(self.plan.seed, "dropout", job.client, assignment.round)
        numbers = {name: column[job.row] for name, column in assignment.broadcast.scalars.items()}
        self.local = self.has(numbers, job.memory)

    def reply(self, method: Method) -> Reply:
        upload, memory = self.do(method, self.model.vector)
        return Reply(at_home(upload), at_home(memory), self.model.buffers.to(HOME, copy=True), self.clock.seconds)

    def fetch(self, step: int) -> None:
        draw_from(self.sample_draw + step, HOME)
        self.batch = self.model.adopt(self.samples.batch(self.batches[step]))

    def gradient(self, point: Tensor) -> Tensor:
        with torch.enable_grad():
            return self.model.gradient(point, self.batch, self.plan.loss, self.first_draw + self.local.step)

    def full_gradient(self, point: Tensor) -> Tensor:
        count = len(self.samples)
        total = torch.zeros_like(point)
        for number, part in enumerate(_parts(count)):
            draw_from(self.sample_draw + number, HOME)
            batch = self.model.adopt(self.samples.batch(part))
            with torch.enable_grad():
                gradient = self.model.gradient(point, batch, self.plan.loss, self.first_draw)
            total += gradient * (len(part) / count)
        return total


class _StackOfClients(_Work):
    """Clients that take equally many steps, as rows."""

    def __init__(self, worker: Worker, assignment: Assignment, jobs: Sequence[Job], stack: Stack) -> None:
        super().__init__(worker, assignment, jobs[0].steps)
        self.jobs, self.stack = jobs, stack
        clients = [worker.clients[job.client] for job in jobs]
        plans = [self.batches_of(job.client) for job in jobs]
        self.batches = StackedBatches(clients, plans, [self.first_sample_draw(job.client) for job in jobs])
        rows = torch.tensor([job.row for job in jobs])
        columns = {name: column[rows, None] for name, column in assignment.broadcast.scalars.items()}
        memory = {name: torch.stack([job.memory[name] for job in jobs]) for name in jobs[0].memory}
        self.local = self.has(self.model.near(columns), memory)

    def replies(self, method: Method) -> list[Reply]:
        done = self.do(method, self._rows(self.start).clone())
        upload, memory = (at_home(part) for part in done)
        return [
            Reply(
                {name: rows[place] for name, rows in upload.items()},
                {name: rows[place].clone() for name, rows in memory.items()},
                self.assignment.buffers,
                seconds=None,
            )
            for place in range(len(self.jobs))
        ]

    def fetch(self, step: int) -> None:
        self.batch = self.model.adopt(self.batches.at(step))

    def gradient(self, point: Tensor) -> Tensor:
        return self.stack.gradient(self._rows(point), *self.batch)

    def full_gradient(self, point: Tensor) -> Tensor:
        """One client after another: they hold different numbers of samples."""
        alone = (_OneClient(self.worker, self.assignment, job) for job in self.jobs)
        return torch.stack([client.full_gradient(row) for client, row in zip(alone, self._rows(point), strict=True)])

    def _rows(self, point: Tensor) -> Tensor:
        return point.expand(len(self.jobs), -1)


def _parts(count: int) -> list[Tensor]:
    """All samples in parts; a last one alone, on which batch norm could not work, goes with those before it.

    >>> [len(part) for part in _parts(2049)]
    [1024, 1025]
    """
    parts = list(torch.split(torch.arange(count), FULL_PASS_BATCH))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


class _Clock:
    """Seconds spent inside ``with`` blocks; fetching samples stays outside of them."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, 0.0

    def __enter__(self) -> None:
        self.began = perf_counter()

    def __exit__(self, *_: object) -> None:
        wait_for(self.device)
        self.seconds += perf_counter() - self.began


def rehearse(method: Method, assignment: Assignment, setting: Setting, memory: Memory) -> tuple[Memory, Memory]:
    """What a client will send (as full vectors) and remember, by one step with a gradient of zeros."""
    sent = assignment.broadcast
    local = Local(
        setting=setting,
        start=sent.start,
        received={**sent.vectors, **{name: values[0] for name, values in sent.scalars.items()}},
        memory=memory,
        steps=1,
        gradient=torch.zeros_like,
        full_gradient=torch.zeros_like,
    )
    if assignment.phase == "survey":
        return method.decode(method.survey(local)), memory
    local.correction = method.correction(local)
    update = setting.local_lr * method.direction(sent.start, local)
    upload, new_memory = method.finish(update, local)
    return method.decode(upload), new_memory


def at_home(named: Memory) -> Memory:
    return {name: tensor.to(HOME) for name, tensor in named.items()}


def names_of(jobs: Sequence[Job]) -> str:
    return ("client " if len(jobs) == 1 else "clients ") + ", ".join(str(job.client) for job in jobs)


@contextmanager
def _blaming(jobs: Sequence[Job], method: Method, assignment: Assignment) -> Iterator[None]:
    """An error tells whose it is."""
    try:
        yield
    except Exception as error:
        error.add_note(f"This happened to {names_of(jobs)} in round {assignment.round} of {method.name}.")
        raise
