"""Callbacks: the progress bar, and trackers such as TensorBoard, follow runs through them."""

from collections.abc import Mapping, Sequence
from functools import partialmethod
from pathlib import Path
from typing import Any

from fedtaco.engines import EngineChoice
from fedtaco.records import RoundRecord
from fedtaco.runs.settings import ExperimentConfig


class Callback:
    """Is called as runs proceed; override what is of interest. Several runs may proceed at the same time."""

    def on_run_begin(self, config: ExperimentConfig, folder: Path | None, engine: EngineChoice) -> None:
        """Handle the start of a run, or its continuation."""

    def on_round_end(self, config: ExperimentConfig, record: RoundRecord) -> None:
        """Handle the end of a round."""

    def on_run_end(self, config: ExperimentConfig, summary: Mapping[str, Any]) -> None:
        """Handle the end of a run."""

    def on_run_skipped(self, config: ExperimentConfig) -> None:
        """Handle a run that had finished before."""

    def on_timing_turn(self, done: int, turns: int) -> None:
        """Handle one of the turns in which methods are timed."""


class CallbackList(Callback):
    """Calls several callbacks."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = callbacks

    def _call(self, event: str, *details: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(*details)

    on_run_begin = partialmethod(_call, "on_run_begin")
    on_round_end = partialmethod(_call, "on_round_end")
    on_run_end = partialmethod(_call, "on_run_end")
    on_run_skipped = partialmethod(_call, "on_run_skipped")
    on_timing_turn = partialmethod(_call, "on_timing_turn")
