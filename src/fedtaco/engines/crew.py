"""A crew: worker processes, one torch thread each, that write their uploads into shared memory.

Workers are forked, so that model and data are theirs without being sent; what a round needs and
gives lies in shared memory that both sides see. Only job numbers and seconds pass through pipes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor

from fedtaco.engines.base import Results
from fedtaco.errors import InvalidInput, ProcessDied
from fedtaco.local import Assignment, Job, Reply, Worker, names_of, rehearse
from fedtaco.methods import Broadcast, Memory, Method

TRIES = 2
"""How often a shift is run whose worker dies."""


Task = Callable[[Method, Assignment, Sequence[Job]], Sequence[Reply]]
"""How a worker runs the jobs of one shift."""


@dataclass
class Crews:
    """One crew for each phase of a round, hired when it is first needed."""

    worker: Worker
    task: Task
    size: int
    _crews: dict[str, _Crew] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not can_fork():
            raise InvalidInput("Worker processes are forked, which works on Linux only; use --engine serial.")

    def run(self, method: Method, assignment: Assignment, shifts: Sequence[Sequence[Job]]) -> Results:
        """Run shifts of jobs, each by one worker at a stroke, in the order given."""
        jobs = sorted((job for shift in shifts for job in shift), key=lambda job: job.row)
        crew = self._crews.get(assignment.phase)
        if crew is None or len(jobs) > crew.rows:
            if crew is not None:
                crew.dismiss()
            crew = _Crew(self.worker, self.task, method, assignment, jobs, min(self.size, len(shifts)))
            self._crews[assignment.phase] = crew
        return crew.run(assignment, jobs, shifts)

    def dismiss(self) -> None:
        for crew in self._crews.values():
            crew.dismiss()
        self._crews.clear()


@dataclass(frozen=True)
class _Desk:
    """The shared memory of a crew: what is sent down, and a row for each client of what comes back."""

    start: Tensor
    buffers: Tensor
    vectors: Memory
    scalars: Memory
    memory: Memory
    upload: Memory
    new_memory: Memory
    new_buffers: Tensor

    @classmethod
    def of(cls, method: Method, assignment: Assignment, worker: Worker, memory: Memory, rows: int) -> _Desk:
        sent = assignment.broadcast
        upload, new_memory = rehearse(method, assignment, worker.plan.setting, memory)
        return cls(
            start=_shared(sent.start),
            buffers=_shared(assignment.buffers),
            vectors={name: _shared(tensor) for name, tensor in sent.vectors.items()},
            scalars={name: _shared(tensor) for name, tensor in sent.scalars.items()},
            memory={name: _shared(tensor, rows) for name, tensor in memory.items()},
            upload={name: _shared(tensor, rows) for name, tensor in upload.items()},
            new_memory={name: _shared(tensor, rows) for name, tensor in new_memory.items()},
            new_buffers=_shared(assignment.buffers, rows),
        )

    def lay_out(self, assignment: Assignment, jobs: Sequence[Job]) -> None:
        sent = assignment.broadcast
        self.start.copy_(sent.start)
        self.buffers.copy_(assignment.buffers)
        _copy(self.vectors, sent.vectors)
        for name, numbers in sent.scalars.items():
            self.scalars[name][: len(numbers)].copy_(numbers)
        for job in jobs:
            _copy({name: rows[job.row] for name, rows in self.memory.items()}, job.memory)

    def assignment(self, phase: Any, round_number: int) -> Assignment:
        return Assignment(phase, round_number, Broadcast(self.start, self.vectors, self.scalars), self.buffers)

    def memory_of(self, row: int) -> Memory:
        return {name: rows[row].clone() for name, rows in self.memory.items()}

    def hand_in(self, row: int, upload: Memory, reply: Reply) -> None:
        _copy({name: rows[row] for name, rows in self.upload.items()}, upload)
        _copy({name: rows[row] for name, rows in self.new_memory.items()}, reply.memory)
        self.new_buffers[row].copy_(reply.buffers)

    def collect(self, jobs: Sequence[Job], seconds: Mapping[int, float | None]) -> Results:
        results = Results(jobs)
        count = len(jobs)
        results.vectors = {name: rows[:count] for name, rows in self.upload.items()}
        results.buffers = self.new_buffers[:count]
        results.memories = [{name: rows[job.row].clone() for name, rows in self.new_memory.items()} for job in jobs]
        results.seconds = [seconds[job.row] for job in jobs]
        return results


class _Crew:
    """Workers that share one desk."""

    def __init__(
        self, worker: Worker, task: Task, method: Method, assignment: Assignment, jobs: Sequence[Job], size: int
    ) -> None:
        self.rows = len(jobs)
        self.desk = _Desk.of(method, assignment, worker, jobs[0].memory, self.rows)
        self.task, self.method = task, method
        self.members: list[tuple[BaseProcess, Connection]] = []
        for _ in range(size):
            self._hire()
        self._finalizer = weakref.finalize(self, _dismiss, self.members)

    def dismiss(self) -> None:
        self._finalizer()

    def run(self, assignment: Assignment, jobs: Sequence[Job], shifts: Sequence[Sequence[Job]]) -> Results:
        self.desk.lay_out(assignment, jobs)
        waiting = list(reversed(shifts))
        working: dict[Connection, Sequence[Job]] = {}
        tries: dict[int, int] = {}
        seconds: dict[int, float | None] = {}

        def assign(link: Connection) -> None:
            if waiting:
                shift = waiting.pop()
                tries[shift[0].row] = tries.get(shift[0].row, 0) + 1
                orders = [(job.row, job.client, job.steps) for job in shift]
                try:
                    link.send((assignment.phase, assignment.round, orders))
                except OSError:
                    again(link, shift, "before")
                else:
                    working[link] = shift

        def again(link: Connection, shift: Sequence[Job], when: str) -> None:
            waiting.append(shift)
            assign(self._replace(link, shift, tries[shift[0].row], when))

        for _, link in list(self.members):
            assign(link)
        while working:
            for link in [link for link in working if link in wait(list(working))]:
                shift = working.pop(link)
                try:
                    answer = link.recv()
                except (EOFError, ConnectionResetError):
                    again(link, shift, "while")
                    continue
                if isinstance(answer, Exception):
                    raise answer
                seconds.update(answer)
                assign(link)
        return self.desk.collect(jobs, seconds)

    def _replace(self, link: Connection, shift: Sequence[Job], tries: int, when: str) -> Connection:
        """A new worker for one that died."""
        place = next(place for place, (_, own) in enumerate(self.members) if own is link)
        process, _ = self.members.pop(place)
        process.join()
        link.close()
        clients = names_of(shift)
        story = f"Worker {process.pid} died (exit code {process.exitcode}) {when} it ran {clients}"
        if tries >= TRIES:
            raise ProcessDied(f"{story}, for the second time; there may be too little memory for it.")
        warnings.warn(f"{story}; this is run again.", RuntimeWarning, stacklevel=2)
        return self._hire()

    def _hire(self) -> Connection:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        others = [link for _, link in self.members]
        arguments = (there, [here, *others], self.task, self.method, self.desk, os.getpid())
        process = context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        there.close()
        self.members.append((process, here))
        return here


def _serve(link: Connection, not_mine: list[Connection], task: Task, method: Method, desk: _Desk, parent: int) -> None:
    """A worker's life: run the shifts it is given, until the pipe closes or the parent is gone."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in not_mine:
        other.close()
    torch.set_num_threads(1)
    while True:
        try:
            phase, round_number, orders = link.recv()
        except EOFError:
            return
        try:
            jobs = [Job(row, client, steps, desk.memory_of(row)) for row, client, steps in orders]
            replies = task(method, desk.assignment(phase, round_number), jobs)
            for job, reply in zip(jobs, replies, strict=True):
                desk.hand_in(job.row, method.decode(reply.upload), reply)
            link.send({job.row: reply.seconds for job, reply in zip(jobs, replies, strict=True)})
        except Exception as error:
            link.send(portable(error))


def die_with(parent: int) -> None:
    """Ask the kernel to end this process when the parent ends, however that happens."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def can_fork() -> bool:
    """Whether a process can be forked that ends with this one: on Linux."""
    return sys.platform.startswith("linux")


def portable(error: Exception) -> Exception:
    """The error itself, with its notes, or one that can be sent in its place."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        stand_in = RuntimeError(f"{type(error).__name__}: {error}")
        stand_in.__notes__ = getattr(error, "__notes__", [])
        return stand_in
    return error


def _dismiss(members: list[tuple[BaseProcess, Connection]]) -> None:
    for process, link in members:
        link.close()
        process.terminate()
    for process, _ in members:
        process.join()
    members.clear()


def _shared(like: Tensor, rows: int | None = None) -> Tensor:
    shape = like.shape if rows is None else (rows, *like.shape)
    tensor = torch.zeros(shape, dtype=like.dtype)
    tensor.share_memory_()
    return tensor


def _copy(targets: Memory, sources: Memory) -> None:
    for name, source in sources.items():
        targets[name].copy_(source)
