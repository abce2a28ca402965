"""Callbacks that follow runs, such as the progress bar and trackers."""

from collections.abc import Mapping, Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any

from fedtaco.engines import EngineChoice
from fedtaco.records import RoundRecord
from fedtaco.runs.settings import ExperimentConfig


class Callback:
    """Base of callbacks; override the events of interest.

    Several runs may proceed at the same time: ``config``, the same object in all events of a run, identifies it.
    """

    def on_run_begin(self, config: ExperimentConfig, folder: Path | None, engine: EngineChoice) -> None:
        """Handle the start of a run, or its continuation; ``folder`` is ``None`` if nothing is recorded."""

    def on_evaluation_begin(self, config: ExperimentConfig, round_number: int) -> None:
        """Handle the start of an evaluation, after the training of a round or, on clients' own samples, of the run."""

    def on_round_end(self, config: ExperimentConfig, record: RoundRecord) -> None:
        """Handle the end of a round."""

    def on_run_end(self, config: ExperimentConfig, summary: Mapping[str, Any]) -> None:
        """Handle the end of a run, finished or stopped early; ``summary`` is that in ``summary.json``."""

    def on_run_skipped(self, config: ExperimentConfig) -> None:
        """Handle a run that is not repeated because it has already ended."""

    def on_timing_turn(self, done: int, turns: int) -> None:
        """Handle the end of a turn in which a method was timed: ``done`` of ``turns`` are over."""


class CallbackList(Callback):
    """Passes every event on to several callbacks, in order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks

    def _call(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(*details)

    on_run_begin = partialmethod(_call, "on_run_begin")
    on_evaluation_begin = partialmethod(_call, "on_evaluation_begin")
    on_round_end = partialmethod(_call, "on_round_end")
    on_run_end = partialmethod(_call, "on_run_end")
    on_run_skipped = partialmethod(_call, "on_run_skipped")
    on_timing_turn = partialmethod(_call, "on_timing_turn")
