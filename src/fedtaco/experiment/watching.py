"""Who is told how runs go: the progress bar, and trackers such as TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtaco.engines import Choice
from fedtaco.experiment.config import Experiment
from fedtaco.records import RoundRecord


class Watcher:
    """Is told how runs go; override what is of interest. Several runs may go on at the same time."""

    def run_begun(self, experiment: Experiment, folder: Path | None, engine: Choice) -> None: ...

    def round_done(self, experiment: Experiment, record: RoundRecord) -> None: ...

    def run_ended(self, experiment: Experiment, summary: Mapping[str, Any]) -> None: ...

    def run_skipped(self, experiment: Experiment) -> None:
        """It was finished before."""

    def turn_timed(self, done: int, turns: int) -> None:
        """Of the turns in which methods are timed."""


class Everyone(Watcher):
    """Tells several watchers."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.watchers = watchers

    def run_begun(self, experiment: Experiment, folder: Path | None, engine: Choice) -> None:
        for watcher in self.watchers:
            watcher.run_begun(experiment, folder, engine)

    def round_done(self, experiment: Experiment, record: RoundRecord) -> None:
        for watcher in self.watchers:
            watcher.round_done(experiment, record)

    def run_ended(self, experiment: Experiment, summary: Mapping[str, Any]) -> None:
        for watcher in self.watchers:
            watcher.run_ended(experiment, summary)

    def run_skipped(self, experiment: Experiment) -> None:
        for watcher in self.watchers:
            watcher.run_skipped(experiment)

    def turn_timed(self, done: int, turns: int) -> None:
        for watcher in self.watchers:
            watcher.turn_timed(done, turns)
