"""The live progress bar, on standard error so that results can be piped."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedtaco.engines import Choice
from fedtaco.experiment import Experiment, Watcher
from fedtaco.records import RoundRecord

errors = Console(stderr=True)


class ProgressBar(Watcher):
    """A bar over all rounds of some runs, with the newest accuracy beside it and warnings above it."""

    def __init__(self, experiments: Sequence[Experiment]) -> None:
        self.done = {id(experiment): 0 for experiment in experiments}
        self.engines_told: set[str] = set()
        self.shown = ExitStack()
        self.bar = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
        )
        rounds = sum(experiment.rounds for experiment in experiments)
        self.task = self.bar.add_task("starting", total=rounds, visible=rounds > 0)
        self.timing = self.bar.add_task("timing by turns", visible=False)

    def __enter__(self) -> Self:
        self.shown.enter_context(warnings.catch_warnings())
        warnings.showwarning = lambda message, *_: self._warn(str(message))
        self.shown.enter_context(self.bar)
        return self

    def __exit__(self, *_: object) -> None:
        self.shown.close()

    def run_begun(self, experiment: Experiment, folder: Path | None, engine: Choice) -> None:
        if str(engine) not in self.engines_told:
            self.engines_told.add(str(engine))
            self.bar.console.print(f"Engine {engine}.", style="dim", highlight=False, markup=False)

    def round_done(self, experiment: Experiment, record: RoundRecord) -> None:
        title = f"{experiment.method} seed {experiment.seed}"
        accuracy = "" if record.accuracy is None else f" {record.accuracy:6.1%}"
        self._advance(experiment, record.round, f"{title}{accuracy}")
        for event in _events(record):
            told = f"{title}, round {record.round}: {event}."
            self.bar.console.print(told, style="yellow", highlight=False, markup=False)

    def run_skipped(self, experiment: Experiment) -> None:
        self._advance(experiment, experiment.rounds, f"{experiment.method} seed {experiment.seed} is done")

    def turn_timed(self, done: int, turns: int) -> None:
        self.bar.update(self.timing, completed=done, total=turns, visible=True)

    def _warn(self, sentence: str) -> None:
        self.bar.console.print(sentence, style="yellow", highlight=False, markup=False, soft_wrap=True)

    def _advance(self, experiment: Experiment, rounds: int, description: str) -> None:
        self.done[id(experiment)] = rounds
        self.bar.update(self.task, completed=sum(self.done.values()), description=description)


def _events(record: RoundRecord) -> Iterator[str]:
    """Whose uploads were left out and who was expelled, those with one reason together."""
    gathered: dict[tuple[str, str], list[int]] = {}
    for client, reason in record.dropped.items():
        gathered.setdefault(("left out", reason), []).append(client)
    for decision in record.decisions:
        if decision.action == "expelled":
            gathered.setdefault(("expelled", decision.reason), []).append(decision.client)
    for (action, reason), clients in gathered.items():
        who = f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"
        yield f"{who} {action}: {reason}"
