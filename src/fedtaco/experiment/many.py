"""Many runs: finished ones are skipped, broken ones resumed, and small ones run side by side."""

from __future__ import annotations

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

from fedtaco.engines import Choice, cores
from fedtaco.engines.crew import can_fork, die_with, portable
from fedtaco.errors import InvalidInput, ProcessDied, RunStopped
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.runs import Manner, run_experiment
from fedtaco.experiment.watching import Watcher
from fedtaco.records import RoundRecord, RunFolder

PATIENCE = 30
"""Seconds that interrupted runs are given to save their last round."""


def run_all(runs: Sequence[tuple[Experiment, Path]], manner: Manner, watcher: Watcher) -> list[dict[str, Any]]:
    """Run each experiment in its folder and return the summaries, in order.

    A run that diverges says so in its summary and does not stop the others; a finished one is not
    run again when resumed.
    """
    if len({path for _, path in runs}) < len(runs):
        raise InvalidInput("Two of the runs would go to the same folder; each needs one of its own.")
    folders = [(experiment, RunFolder(path)) for experiment, path in runs]
    for experiment, folder in folders:
        folder.claim(experiment.stored(), resume=manner.resume, overwrite=manner.overwrite)
    waiting = []
    for experiment, folder in folders:
        if manner.resume and folder.summary():
            watcher.run_skipped(experiment)
        else:
            waiting.append((experiment, folder))
    abreast = _abreast([experiment for experiment, _ in waiting], manner)
    if abreast > 1:
        _SideBySide(waiting, replace(manner, workers=1), watcher).run(abreast)
    else:
        for experiment, folder in waiting:
            with suppress(RunStopped):
                run_experiment(experiment, folder, manner, watcher)
    return [{"folder": str(folder.path), **(folder.summary() or {})} for _, folder in folders]


def _abreast(experiments: Sequence[Experiment], manner: Manner) -> int:
    """How many runs at a time: as many as there are cores, unless the engine was chosen by hand or seconds count."""
    free = manner.workers is None and all(one.engine == "auto" and one.device == "cpu" for one in experiments)
    return min(cores(), len(experiments)) if free and can_fork() else 1


class _SideBySide:
    """Each run in a process of its own, which tells this one how it goes."""

    def __init__(self, waiting: Sequence[tuple[Experiment, RunFolder]], manner: Manner, watcher: Watcher) -> None:
        self.waiting, self.manner, self.watcher = list(reversed(waiting)), manner, watcher
        self.running: dict[Connection, tuple[BaseProcess, Experiment]] = {}

    def run(self, abreast: int) -> None:
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < abreast:
                    self._start(*self.waiting.pop())
                for link in wait(list(self.running)):
                    assert isinstance(link, Connection)
                    self._hear(link)
        finally:
            for process, _ in self.running.values():
                process.terminate()
            for process, _ in self.running.values():
                process.join(PATIENCE)
                process.kill()

    def _start(self, experiment: Experiment, folder: RunFolder) -> None:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        arguments = (there, experiment, folder, self.manner, os.getpid())
        process = context.Process(target=_run_and_tell, args=arguments)
        process.start()
        there.close()
        self.running[here] = process, experiment

    def _hear(self, link: Connection) -> None:
        process, experiment = self.running[link]
        try:
            news = link.recv()
        except EOFError:
            process.join()
            del self.running[link]
            if process.exitcode:
                raise ProcessDied(
                    f"The run of {experiment.method}, seed {experiment.seed}, died (exit code {process.exitcode}); "
                    "go on with --resume."
                ) from None
            return
        if isinstance(news, Warning):
            warnings.warn(news, stacklevel=2)
            return
        if isinstance(news, Exception):
            raise news
        event, details = news
        getattr(self.watcher, event)(experiment, *details)


class _Telling(Watcher):
    """Passes on what it is told."""

    def __init__(self, link: Connection) -> None:
        self.link = link

    def run_begun(self, experiment: Experiment, folder: Path | None, engine: Choice) -> None:
        self.link.send(("run_begun", (folder, replace(engine, stack=None))))

    def round_done(self, experiment: Experiment, record: RoundRecord) -> None:
        self.link.send(("round_done", (record,)))

    def run_ended(self, experiment: Experiment, summary: Mapping[str, Any]) -> None:
        self.link.send(("run_ended", (summary,)))


def _run_and_tell(link: Connection, experiment: Experiment, folder: RunFolder, manner: Manner, parent: int) -> None:
    """A run's process: Ctrl-C is for the parent, whose word to stop lets the last finished round be saved."""
    die_with(parent)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = lambda message, *_: link.send(RuntimeWarning(str(message)))
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            run_experiment(experiment, folder, manner, _Telling(link))
        except RunStopped:
            pass
        except Exception as error:
            link.send(portable(error))


def folder_taken(out: Path) -> None:
    """Refuse a folder that is a run itself, or no folder at all, for a folder of runs."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"out is '{out}', which is a file; name a folder.")
    if RunFolder(out).exists():
        raise InvalidInput(f"{out} holds a single run; choose another folder (out) for several.")
