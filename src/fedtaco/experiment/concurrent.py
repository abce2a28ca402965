"""Do several runs, at the same time if possible; on request, skip those that have ended and resume the others."""

import multiprocessing
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from fedtaco.engines import EngineChoice
from fedtaco.errors import InvalidInput, ProcessDied, RunStopped
from fedtaco.experiment.config import describe_run, to_stored
from fedtaco.experiment.runner import run_experiment
from fedtaco.processes import TERMINATED, can_fork, cores, interrupted_by_sigterm, picklable, set_up_child
from fedtaco.records import RoundRecord, RunFolder
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.settings import ExperimentConfig, RunOptions

GRACE_SECONDS = 30
"""Seconds that interrupted runs have to save their last finished round before they are killed."""


def run_all(
    runs: Sequence[tuple[ExperimentConfig, Path]], options: RunOptions, callback: Callback
) -> list[dict[str, Any]]:
    """Run each configuration in its folder and return the summaries, in order.

    A run that diverges is recorded as stopped in its summary and does not stop the others. With
    ``options.resume``, runs that have ended are skipped.
    """
    if len({path for _, path in runs}) < len(runs):
        raise InvalidInput("Two of the runs have the same folder; give each run its own.")
    folders = [(config, RunFolder(path)) for config, path in runs]
    for config, folder in folders:
        folder.check_available(to_stored(config), resume=options.resume, overwrite=options.overwrite)
    waiting = []
    for config, folder in folders:
        if options.resume and folder.summary():
            callback.on_run_skipped(config)
        else:
            waiting.append((config, folder))
    max_running = _max_concurrent_runs([config for config, _ in waiting], options)
    if max_running > 1:
        _ConcurrentRuns(waiting, replace(options, workers=1), callback).run(max_running)
    else:
        for config, folder in waiting:
            with suppress(RunStopped):
                run_experiment(config, folder, options, callback)
    return [{"folder": str(folder.path), **(folder.summary() or {})} for _, folder in folders]


def _max_concurrent_runs(configs: Sequence[ExperimentConfig], options: RunOptions) -> int:
    """Return how many runs to do at the same time: one per core if all use the CPU and no engine or workers are set."""
    automatic = options.workers is None and all(one["engine"] == "auto" and one["device"] == "cpu" for one in configs)
    return min(cores(), len(configs)) if automatic and can_fork() else 1


class _ConcurrentRuns:
    """Runs each configuration in a process of its own, which reports its progress to this process."""

    def __init__(
        self, waiting: Sequence[tuple[ExperimentConfig, RunFolder]], options: RunOptions, callback: Callback
    ) -> None:
        self.waiting, self.options, self.callback = list(reversed(waiting)), options, callback
        self.running: dict[Connection, tuple[BaseProcess, ExperimentConfig]] = {}

    def run(self, max_running: int) -> None:
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < max_running:
                    self._start(*self.waiting.pop())
                for connection in wait(list(self.running)):
                    assert isinstance(connection, Connection)
                    self._receive(connection)
        finally:
            for process, _ in self.running.values():
                process.terminate()
            for process, _ in self.running.values():
                process.join(GRACE_SECONDS)
                process.kill()

    def _start(self, config: ExperimentConfig, folder: RunFolder) -> None:
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, config, folder, self.options, os.getpid())
        process = context.Process(target=_run_in_process, args=arguments)
        process.start()
        sender.close()
        self.running[receiver] = process, config

    def _receive(self, connection: Connection) -> None:
        process, config = self.running[connection]
        try:
            message = connection.recv()
        except EOFError:
            process.join()
            del self.running[connection]
            if process.exitcode:
                raise ProcessDied(
                    f"The run {describe_run(config)} died (exit code {process.exitcode}); continue with --resume."
                ) from None
            return
        if isinstance(message, Warning):
            warnings.warn(message, stacklevel=2)
            return
        if isinstance(message, Exception):
            raise message
        event, details = message
        getattr(self.callback, event)(config, *details)


class _PipeCallback(Callback):
    """Sends the events of a run to the parent process."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def on_run_begin(self, config: ExperimentConfig, folder: Path | None, engine: EngineChoice) -> None:
        self.connection.send(("on_run_begin", (folder, replace(engine, stack=None))))

    def on_evaluation_begin(self, config: ExperimentConfig, round_number: int) -> None:
        self.connection.send(("on_evaluation_begin", (round_number,)))

    def on_round_end(self, config: ExperimentConfig, record: RoundRecord) -> None:
        self.connection.send(("on_round_end", (record,)))

    def on_run_end(self, config: ExperimentConfig, summary: Mapping[str, Any]) -> None:
        self.connection.send(("on_run_end", (summary,)))


def _run_in_process(
    connection: Connection, config: ExperimentConfig, folder: RunFolder, options: RunOptions, parent: int
) -> None:
    """Run one configuration in a process of its own.

    Ctrl-C is handled by the parent, which then sends SIGTERM: it raises KeyboardInterrupt here, so that the last
    finished round is saved.
    """
    set_up_child(parent)
    torch.set_num_threads(1)
    warnings.showwarning = lambda message, *_: connection.send(RuntimeWarning(str(message)))
    try:
        with interrupted_by_sigterm():
            run_experiment(config, folder, options, _PipeCallback(connection))
    except KeyboardInterrupt:
        sys.exit(TERMINATED)
    except RunStopped:
        pass
    except Exception as error:
        connection.send(picklable(error))


def require_folder_for_runs(out: Path) -> None:
    """Raise InvalidInput if ``out`` cannot contain several runs, because it is a file or the folder of a single run."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"out is '{out}', which is a file; name a folder.")
    if RunFolder(out).exists():
        raise InvalidInput(f"{out} holds a single run; choose another folder (out) for several runs.")
