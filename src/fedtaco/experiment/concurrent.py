"""Do several runs, at the same time if possible; on request, skip those that have ended and resume the others."""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn, cast

import torch

from fedtaco.errors import InvalidInput, ProcessDied, RunStopped, StopTraining
from fedtaco.experiment.runner import recorded_run, run_experiment
from fedtaco.processes import (
    TERMINATED,
    ProcessMonitor,
    can_fork,
    cores,
    interrupted_by_sigterm,
    picklable,
    postponed_interrupts,
    set_up_child,
    terminate,
)
from fedtaco.records import RoundRecord, RunFolder
from fedtaco.runs.callbacks import Callback, Run
from fedtaco.runs.options import RunOptions
from fedtaco.settings.run_spec import RunSpec

GRACE_SECONDS = 30
"""Seconds that interrupted runs have to save their last finished round before they are killed."""


def run_all(runs: Sequence[tuple[RunSpec, Path]], options: RunOptions, callback: Callback) -> list[dict[str, Any]]:
    """Do each run in its folder and return the summaries, in order.

    A run that diverges is recorded as stopped in its summary and does not stop the others. With
    ``options.resume``, runs that have finished or diverged are skipped.
    """
    if len({path for _, path in runs}) < len(runs):
        raise InvalidInput("Two of the runs have the same folder; give each run its own.")
    folders = [(spec, RunFolder(path)) for spec, path in runs]
    for spec, folder in folders:
        folder.check_available(spec.to_stored(), resume=options.resume, overwrite=options.overwrite)
    waiting = []
    for spec, folder in folders:
        ended = folder.summary() if options.resume and folder.exists() else None
        if ended is not None and ended["ended_early"] is None:
            callback.on_run_skipped(recorded_run(spec, folder))
        else:
            waiting.append((spec, folder))
    max_running = _max_concurrent_runs([spec for spec, _ in waiting], options)
    if max_running > 1:
        _ConcurrentRuns(waiting, replace(options, workers=1), callback).run(max_running)
    else:
        for spec, folder in waiting:
            with suppress(RunStopped):
                run_experiment(spec, folder, options, callback)
    return [{"folder": str(folder.path), **(folder.summary() or {})} for _, folder in folders]


def _max_concurrent_runs(specs: Sequence[RunSpec], options: RunOptions) -> int:
    """Return how many runs to do at the same time: one per core if all use the CPU and no engine or workers are set."""
    settings = [spec.settings for spec in specs]
    automatic = options.workers is None and all(one["engine"] == "auto" and one["device"] == "cpu" for one in settings)
    return min(cores(), len(specs)) if automatic and can_fork() else 1


class _ConcurrentRuns:
    """Does each run in a process of its own, which reports its progress to this process."""

    def __init__(self, waiting: Sequence[tuple[RunSpec, RunFolder]], options: RunOptions, callback: Callback) -> None:
        self.waiting, self.options, self.callback = list(reversed(waiting)), options, callback
        self.running: dict[Connection, _RemoteRun] = {}
        self.monitor = ProcessMonitor()

    def run(self, max_running: int) -> None:
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < max_running:
                    self._start(*self.waiting.pop())
                processes = {connection: remote.process for connection, remote in self.running.items()}
                for connection in self.monitor.wait(processes, lambda one: f"the run {self.running[one].run}"):
                    self._receive(connection)
        finally:
            for connection, remote in self.running.items():
                terminate(remote.process)
                connection.close()
            for remote in self.running.values():
                remote.process.join(GRACE_SECONDS)
                remote.process.kill()
                remote.process.join()

    def _start(self, spec: RunSpec, folder: RunFolder) -> None:
        context = multiprocessing.get_context("fork")
        connection, of_child = context.Pipe()
        arguments = (of_child, [connection, *self.running], spec, folder, self.options, os.getpid())
        process = context.Process(target=_run_in_process, args=arguments)
        with postponed_interrupts():
            process.start()
            self.running[connection] = _RemoteRun(process, Run(spec.config, folder.path, "", [], _model_elsewhere))
        of_child.close()

    def _receive(self, connection: Connection) -> None:
        remote = self.running[connection]
        try:
            message = connection.recv()
        except EOFError:
            remote.process.join()
            del self.running[connection]
            if remote.process.exitcode:
                raise ProcessDied(
                    f"The run {remote.run} died (exit code {remote.process.exitcode}); continue it (resume)."
                ) from None
            return
        if isinstance(message, Warning):
            warnings.warn(message, stacklevel=2)
            return
        if isinstance(message, Exception):
            raise message
        reason = None
        try:
            remote.handle(self.callback, *message)
        except StopTraining as stop:
            reason = str(stop)
        with suppress(OSError):  # the process may have been killed, which is noticed when its end is received
            connection.send(reason)


@dataclass
class _RemoteRun:
    """A run in another process."""

    process: BaseProcess
    run: Run

    def handle(self, callback: Callback, event: str, details: Any) -> None:
        """Pass an event on to a callback of this process."""
        if event == "on_run_begin":
            engine, history = details
            self.run = replace(self.run, engine=engine, history=history)
            callback.on_run_begin(self.run)
            return
        if event == "on_round_end":
            cast(list[RoundRecord], self.run.history).append(details)
        getattr(callback, event)(self.run, details)


def _model_elsewhere() -> NoReturn:
    raise InvalidInput(
        "run.model() is not available, because several runs are done at the same time, each in a process of its own; "
        "set workers=1 to do them one after another in this process."
    )


class _PipeCallback(Callback):
    """Sends the events of a run to the parent process, and waits for its reply, which may end the run."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def on_run_begin(self, run: Run) -> None:
        self._send("on_run_begin", (run.engine, list(run.history)))

    def on_evaluation_begin(self, run: Run, round_number: int) -> None:
        self._send("on_evaluation_begin", round_number)

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        self._send("on_round_end", record)

    def on_run_end(self, run: Run, summary: Mapping[str, Any]) -> None:
        self._send("on_run_end", summary)

    def _send(self, event: str, details: Any) -> None:
        try:
            self.connection.send((event, details))
            reason = self.connection.recv()
        except (OSError, EOFError):  # the parent ends all runs, and Python may have ignored the error of its signal
            raise KeyboardInterrupt from None
        if reason is not None:
            raise StopTraining(reason)


def _run_in_process(
    connection: Connection,
    copies: list[Connection],
    spec: RunSpec,
    folder: RunFolder,
    options: RunOptions,
    parent: int,
) -> None:
    """Do one run in a process of its own.

    Ctrl-C is handled by the parent, which then sends SIGTERM: it raises KeyboardInterrupt here, so that the last
    finished round is saved. ``copies`` are the parent's ends of all pipes, which the fork copied.
    """
    set_up_child(parent)
    for copy in copies:
        copy.close()
    torch.set_num_threads(1)

    def send(message: Exception) -> None:
        with suppress(OSError):  # the parent may have closed the pipe, since it ends all runs
            connection.send(message)

    warnings.showwarning = lambda message, *_: send(RuntimeWarning(str(message)))
    try:
        with interrupted_by_sigterm():
            run_experiment(spec, folder, options, _PipeCallback(connection))
    except KeyboardInterrupt:
        sys.exit(TERMINATED)
    except RunStopped:
        pass
    except Exception as error:
        send(picklable(error))


def require_folder_for_runs(out: Path) -> None:
    """Raise InvalidInput if ``out`` cannot contain several runs, because it is a file or the folder of a single run."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"out is '{out}', which is a file; name a folder.")
    if RunFolder(out).exists():
        raise InvalidInput(f"{out} holds a single run; choose another folder (out) for several runs.")
