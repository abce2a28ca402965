"""Several runs: finished ones are skipped, interrupted ones resumed, and small ones run at the same time."""

import multiprocessing
import os
import signal
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
from fedtaco.processes import can_fork, cores, die_with, picklable
from fedtaco.records import RoundRecord, RunFolder
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.settings import ExperimentConfig, RunOptions

GRACE_SECONDS = 30
"""Seconds that interrupted runs get to save their last round."""


def run_all(
    runs: Sequence[tuple[ExperimentConfig, Path]], options: RunOptions, callback: Callback
) -> list[dict[str, Any]]:
    """Run each configuration in its folder and return the summaries, in order.

    A run that diverges says so in its summary and does not stop the others. With ``options.resume``, a
    finished run is not repeated.
    """
    if len({path for _, path in runs}) < len(runs):
        raise InvalidInput("Two of the runs would go to the same folder; each needs one of its own.")
    folders = [(config, RunFolder(path)) for config, path in runs]
    for config, folder in folders:
        folder.check_available(to_stored(config), resume=options.resume, overwrite=options.overwrite)
    waiting = []
    for config, folder in folders:
        if options.resume and folder.summary():
            callback.on_run_skipped(config)
        else:
            waiting.append((config, folder))
    at_once = _runs_at_once([config for config, _ in waiting], options)
    if at_once > 1:
        _ConcurrentRuns(waiting, replace(options, workers=1), callback).run(at_once)
    else:
        for config, folder in waiting:
            with suppress(RunStopped):
                run_experiment(config, folder, options, callback)
    return [{"folder": str(folder.path), **(folder.summary() or {})} for _, folder in folders]


def _runs_at_once(configs: Sequence[ExperimentConfig], options: RunOptions) -> int:
    """Return how many runs to do at a time: one per core, unless the engine or the workers were chosen by hand."""
    free = options.workers is None and all(one["engine"] == "auto" and one["device"] == "cpu" for one in configs)
    return min(cores(), len(configs)) if free and can_fork() else 1


class _ConcurrentRuns:
    """Runs each configuration in a process of its own, which reports its progress to this one."""

    def __init__(
        self, waiting: Sequence[tuple[ExperimentConfig, RunFolder]], options: RunOptions, callback: Callback
    ) -> None:
        self.waiting, self.options, self.callback = list(reversed(waiting)), options, callback
        self.running: dict[Connection, tuple[BaseProcess, ExperimentConfig]] = {}

    def run(self, at_once: int) -> None:
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < at_once:
                    self._start(*self.waiting.pop())
                for link in wait(list(self.running)):
                    assert isinstance(link, Connection)
                    self._receive(link)
        finally:
            for process, _ in self.running.values():
                process.terminate()
            for process, _ in self.running.values():
                process.join(GRACE_SECONDS)
                process.kill()

    def _start(self, config: ExperimentConfig, folder: RunFolder) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        arguments = (there, config, folder, self.options, os.getpid())
        process = context.Process(target=_run_in_process, args=arguments)
        process.start()
        there.close()
        self.running[here] = process, config

    def _receive(self, link: Connection) -> None:
        process, config = self.running[link]
        try:
            message = link.recv()
        except EOFError:
            process.join()
            del self.running[link]
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
    """Sends every event to the parent process."""

    def __init__(self, link: Connection) -> None:
        self.link = link

    def on_run_begin(self, config: ExperimentConfig, folder: Path | None, engine: EngineChoice) -> None:
        self.link.send(("on_run_begin", (folder, replace(engine, stack=None))))

    def on_round_end(self, config: ExperimentConfig, record: RoundRecord) -> None:
        self.link.send(("on_round_end", (record,)))

    def on_run_end(self, config: ExperimentConfig, summary: Mapping[str, Any]) -> None:
        self.link.send(("on_run_end", (summary,)))


def _run_in_process(
    link: Connection, config: ExperimentConfig, folder: RunFolder, options: RunOptions, parent: int
) -> None:
    """Run one configuration; Ctrl-C is for the parent, whose SIGTERM lets the last finished round be saved."""
    die_with(parent)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = lambda message, *_: link.send(RuntimeWarning(str(message)))
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            run_experiment(config, folder, options, _PipeCallback(link))
        except RunStopped:
            pass
        except Exception as error:
            link.send(picklable(error))


def require_folder_for_runs(out: Path) -> None:
    """Raise InvalidInput if ``out`` cannot contain several runs: it is a file, or a run itself."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"out is '{out}', which is a file; name a folder.")
    if RunFolder(out).exists():
        raise InvalidInput(f"{out} holds a single run; choose another folder (out) for several.")
