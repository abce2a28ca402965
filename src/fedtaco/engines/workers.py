"""Worker processes, one torch thread each, that write their results into shared memory.

Workers are forked, so that they have the model and the data without any transfer. Broadcasts, memories and
uploads are in shared memory; pipes carry only the numbers of a job, its seconds and training loss, and errors.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import torch
from torch import Tensor

from fedtaco.client import ClientRunner, dry_run
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions, Phase, describe_clients
from fedtaco.errors import InvalidInput, ProcessDied
from fedtaco.methods import Broadcast, Method, NamedTensors
from fedtaco.processes import ProcessMonitor, can_fork, picklable, postponed_interrupts, set_up_child

MAX_TRIES = 2
"""Maximum number of attempts to run a batch of jobs whose worker dies."""

JobBatch = Sequence[ClientJob]
Measurements = Mapping[int, tuple[float | None, float | None]]
"""Seconds and training loss of each client, by row."""
RunBatch = Callable[[Method, Instructions, JobBatch], Sequence[ClientResult]]
"""A function that runs a batch of jobs in a worker and returns one result per job."""


@dataclass
class WorkerPool:
    """Worker processes for each phase of a round, started when they are first needed.

    Parameters
    ----------
    runner
        Trains the clients.
    run_batch
        Runs a batch of jobs in a worker.
    size
        Maximum number of workers per phase.
    """

    runner: ClientRunner
    run_batch: RunBatch
    size: int
    _phases: dict[Phase, _PhaseWorkers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not can_fork():
            raise InvalidInput("Worker processes are forked, which works on Linux only; set engine to 'serial'.")

    def run(self, method: Method, instructions: Instructions, batches: Sequence[JobBatch]) -> CohortResults:
        """Run batches of jobs, each on one worker; they are started in the given order."""
        jobs = sorted((job for batch in batches for job in batch), key=lambda job: job.row)
        workers = self._phases.get(instructions.phase)
        if workers is None or len(jobs) > workers.rows:
            if workers is not None:
                workers.stop()
            size = min(self.size, len(batches))
            workers = _PhaseWorkers(self, method, instructions, jobs, size)
            self._phases[instructions.phase] = workers
        return workers.run(instructions, jobs, batches)

    def stop(self) -> None:
        """Stop all workers."""
        for workers in self._phases.values():
            workers.stop()
        self._phases.clear()


@dataclass(frozen=True)
class SharedBuffers:
    """Tensors in shared memory: the inputs of a round, which the parent writes, and the results of the workers.

    ``memory``, ``upload``, ``new_memory`` and ``new_buffers`` have one row per client.
    """

    start: Tensor
    buffers: Tensor
    vectors: NamedTensors
    scalars: NamedTensors
    memory: NamedTensors
    upload: NamedTensors
    new_memory: NamedTensors
    new_buffers: Tensor

    @classmethod
    def allocate(
        cls, method: Method, instructions: Instructions, runner: ClientRunner, memory: NamedTensors, rows: int
    ) -> SharedBuffers:
        """Allocate buffers for ``rows`` clients; a dry run of the method gives the names and shapes of the results."""
        sent = instructions.broadcast
        upload, new_memory = dry_run(method, instructions, runner.config.constants, memory)
        return cls(
            start=_shared(sent.start),
            buffers=_shared(instructions.buffers),
            vectors={name: _shared(tensor) for name, tensor in sent.vectors.items()},
            scalars={name: _shared(tensor) for name, tensor in sent.scalars.items()},
            memory={name: _shared(tensor, rows) for name, tensor in memory.items()},
            upload={name: _shared(tensor, rows) for name, tensor in upload.items()},
            new_memory={name: _shared(tensor, rows) for name, tensor in new_memory.items()},
            new_buffers=_shared(instructions.buffers, rows),
        )

    def write_inputs(self, instructions: Instructions, jobs: JobBatch) -> None:
        """Copy the broadcast and the clients' memories into the buffers."""
        sent = instructions.broadcast
        self.start.copy_(sent.start)
        self.buffers.copy_(instructions.buffers)
        _copy(self.vectors, sent.vectors)
        for name, values in sent.scalars.items():
            self.scalars[name][: len(values)].copy_(values)
        for job in jobs:
            _copy({name: rows[job.row] for name, rows in self.memory.items()}, job.memory)

    def read_instructions(self, phase: Phase, round_number: int) -> Instructions:
        """Return the instructions, whose tensors are the buffers themselves."""
        return Instructions(phase, round_number, Broadcast(self.start, self.vectors, self.scalars), self.buffers)

    def read_memory(self, row: int) -> NamedTensors:
        """Return a copy of a client's memory before the round."""
        return {name: rows[row].clone() for name, rows in self.memory.items()}

    def write_result(self, row: int, result: ClientResult) -> None:
        """Copy a client's upload, new memory and buffers into its row."""
        _copy({name: rows[row] for name, rows in self.upload.items()}, result.upload)
        _copy({name: rows[row] for name, rows in self.new_memory.items()}, result.memory)
        self.new_buffers[row].copy_(result.buffers)

    def read_results(self, jobs: JobBatch, measured: Measurements) -> CohortResults:
        """Return the results of a cohort; uploads are views of the buffers and valid until the next round."""
        results = CohortResults.empty(jobs)
        count = len(jobs)
        results.vectors = {name: rows[:count] for name, rows in self.upload.items()}
        results.buffers = self.new_buffers[:count]
        for job in jobs:
            results.memories[job.client] = {name: rows[job.row].clone() for name, rows in self.new_memory.items()}
            results.seconds[job.client], results.training_losses[job.client] = measured[job.row]
        return results


class _PhaseWorkers:
    """The workers of one phase, which share one set of buffers."""

    def __init__(self, pool: WorkerPool, method: Method, instructions: Instructions, jobs: JobBatch, size: int) -> None:
        self.rows, self.run_batch, self.method = len(jobs), pool.run_batch, method
        self.shared = SharedBuffers.allocate(method, instructions, pool.runner, jobs[0].memory, self.rows)
        self.workers: dict[Connection, BaseProcess] = {}
        self.monitor = ProcessMonitor()
        self._finalizer = weakref.finalize(self, _stop, self.workers)
        for _ in range(size):
            self._start()

    def stop(self) -> None:
        self._finalizer()

    def run(self, instructions: Instructions, jobs: JobBatch, batches: Sequence[JobBatch]) -> CohortResults:
        """Run batches of jobs; if a worker dies, a new one runs its batch again."""
        self.shared.write_inputs(instructions, jobs)
        waiting = list(reversed(batches))
        running: dict[Connection, JobBatch] = {}
        tries: dict[int, int] = {}
        measured: dict[int, tuple[float | None, float | None]] = {}

        def assign(link: Connection) -> None:
            if waiting:
                batch = waiting.pop()
                tries[batch[0].row] = tries.get(batch[0].row, 0) + 1
                job_numbers = [(job.row, job.client, job.steps) for job in batch]
                try:
                    link.send((instructions.phase, instructions.round, job_numbers))
                except OSError:
                    retry(link, batch, "before")
                else:
                    running[link] = batch

        def retry(link: Connection, batch: JobBatch, when: str) -> None:
            waiting.append(batch)
            assign(self._replace(link, batch, tries[batch[0].row], when))

        def describe(link: Connection) -> str:
            return f"which runs {describe_clients(running[link])}"

        for link in list(self.workers):
            assign(link)
        while running:
            ready = self.monitor.wait({link: self.workers[link] for link in running}, describe)
            for link in [link for link in running if link in ready]:
                batch = running.pop(link)
                try:
                    answer = link.recv()
                except (EOFError, ConnectionResetError):
                    retry(link, batch, "while")
                    continue
                if isinstance(answer, Exception):
                    raise answer
                measured.update(answer)
                assign(link)
        return self.shared.read_results(jobs, measured)

    def _replace(self, link: Connection, batch: JobBatch, tries: int, when: str) -> Connection:
        """Replace a worker that died, or raise ProcessDied if its batch was tried too often."""
        process = self.workers.pop(link)
        process.join()
        link.close()
        event = f"Worker {process.pid} died (exit code {process.exitcode}) {when} it ran {describe_clients(batch)}"
        if tries >= MAX_TRIES:
            raise ProcessDied(f"{event}, for the second time; the machine may have too little memory.")
        warnings.warn(f"{event}; a new worker tries again.", RuntimeWarning, stacklevel=2)
        return self._start()

    def _start(self) -> Connection:
        """Start a worker and return the parent's end of its pipe."""
        context = multiprocessing.get_context("fork")
        parent_end, worker_end = context.Pipe()
        arguments = (worker_end, [parent_end, *self.workers], self.run_batch, self.method, self.shared, os.getpid())
        process = context.Process(target=_work, args=arguments, daemon=True)
        with postponed_interrupts():
            process.start()
            self.workers[parent_end] = process
        worker_end.close()
        return parent_end


def _work(
    link: Connection, copies: list[Connection], run_batch: RunBatch, method: Method, shared: SharedBuffers, parent: int
) -> None:
    """Run batches of jobs until the pipe closes or the parent ends.

    ``copies`` are the parent's ends of all pipes, which the fork copied. They are closed, since a pipe closes only when
    no process holds its other end.
    """
    set_up_child(parent)
    for copy in copies:
        copy.close()
    torch.set_num_threads(1)
    while True:
        try:
            phase, round_number, job_numbers = link.recv()
        except EOFError:
            return
        try:
            jobs = [ClientJob(row, client, steps, shared.read_memory(row)) for row, client, steps in job_numbers]
            results = run_batch(method, shared.read_instructions(phase, round_number), jobs)
            for job, result in zip(jobs, results, strict=True):
                shared.write_result(job.row, result)
            measured = [(result.seconds, result.training_loss) for result in results]
            link.send({job.row: numbers for job, numbers in zip(jobs, measured, strict=True)})
        except Exception as error:
            link.send(picklable(error))


def _stop(workers: dict[Connection, BaseProcess]) -> None:
    """Kill the workers, also stopped ones, and wait until they have ended; they have nothing to save."""
    for link, process in workers.items():
        link.close()
        process.kill()
    for process in workers.values():
        process.join()
    workers.clear()


def _shared(like: Tensor, rows: int | None = None) -> Tensor:
    """Return zeros in shared memory, of the shape of ``like`` or with ``rows`` rows of that shape.

    The memory is anonymous: forked workers inherit it, and it takes no space in /dev/shm, which is small in containers.
    """
    shape = like.shape if rows is None else torch.Size((rows, *like.shape))
    size = shape.numel() * like.itemsize
    if size == 0:
        return torch.zeros(shape, dtype=like.dtype)
    try:
        memory = mmap.mmap(-1, size)
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"There is no memory for the uploads of a round, {size / 1e9:,.1f} GB: {error}. Let fewer clients take "
            "part (participation), or use a smaller model."
        ) from error
    return torch.frombuffer(memory, dtype=like.dtype).view(shape)


def _copy(targets: NamedTensors, sources: NamedTensors) -> None:
    for name, source in sources.items():
        targets[name].copy_(source)
