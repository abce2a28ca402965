"""Callbacks: objects that follow runs, such as a progress bar, and may end them early."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path
from typing import Any

from torch import nn

from fedtaco.errors import InvalidInput, StopTraining
from fedtaco.printable import quoted
from fedtaco.records import RoundRecord


@dataclass(frozen=True, eq=False)
class Run:
    """A run as callbacks see it. All events of a run receive the same object, so that it can be the key of a dict."""

    config: Mapping[str, Any]
    """The settings of the run."""
    folder: Path | None
    """The run folder; ``None`` if nothing is recorded."""
    engine: str
    """The engine, and the reason why it was chosen."""
    history: Sequence[RoundRecord]
    """The finished rounds, including those before a resume; it grows with every round."""
    build_model: Callable[[], nn.Module]
    """Returns the current global model."""

    def model(self) -> nn.Module:
        """Return a copy of the current global model, on the CPU and in evaluation mode.

        Raises
        ------
        InvalidInput
            If the run is in another process, as in a comparison of several runs at the same time.
        """
        return self.build_model()

    def __str__(self) -> str:
        return f"{self.config['method']} seed {self.config['seed']}"


class Callback:
    """Base of callbacks; override the events of interest.

    A callback ends a run by raising :class:`~fedtaco.StopTraining` in ``on_run_begin`` or ``on_round_end``: the round
    is recorded, and the run can be resumed. Any other error ends the run too, with its traceback; a recorded run can
    then be resumed as well.
    """

    def on_begin(self, configs: Sequence[Mapping[str, Any]]) -> None:
        """Handle the start of one or several runs with these settings, of which several may proceed at a time."""

    def on_run_begin(self, run: Run) -> None:
        """Handle the start of a run, or its continuation."""

    def on_evaluation_begin(self, run: Run, round_number: int) -> None:
        """Handle the start of an evaluation, after the training of a round or, on clients' own samples, of the run."""

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        """Handle the end of a round."""

    def on_run_end(self, run: Run, summary: Mapping[str, Any]) -> None:
        """Handle the end of a run, finished or not; ``summary`` is that in ``summary.json``."""

    def on_run_skipped(self, run: Run) -> None:
        """Handle a run that is not repeated because it has already ended."""

    def on_timing_turn(self, done: int, turns: int) -> None:
        """Handle the end of a turn in which a method was timed: ``done`` of ``turns`` are over."""

    def on_end(self) -> None:
        """Handle the end of all runs, however they end."""


class CallbackList(Callback):
    """Passes every event on to several callbacks, in order; all receive it, even if one of them ends the run.

    Parameters
    ----------
    callbacks
        The user's callbacks.
    trackers
        Further ones, which come after them.

    Raises
    ------
    InvalidInput
        If one of the callbacks is something else, such as a function or a class, or they are not a list.
    """

    def __init__(self, callbacks: Sequence[Callback], trackers: Sequence[Callback] = ()) -> None:
        if not isinstance(callbacks, Iterable):
            raise InvalidInput(f"callbacks is {quoted(callbacks)}; it must be a list of callbacks.")
        callbacks = [*callbacks, *trackers]
        for callback in callbacks:
            if not isinstance(callback, Callback):
                name = getattr(callback, "__name__", type(callback).__name__)
                raise InvalidInput(f"callbacks contains {name}; each must be an instance of a fedtaco.Callback.")
        self.callbacks = callbacks

    def _call(self, event: str, *details: Any) -> None:
        stops = []
        for callback in self.callbacks:
            try:
                getattr(callback, event)(*details)
            except StopTraining as stop:
                stops.append(stop)
        if stops:
            raise stops[0]

    on_begin = partialmethod(_call, "on_begin")
    on_run_begin = partialmethod(_call, "on_run_begin")
    on_evaluation_begin = partialmethod(_call, "on_evaluation_begin")
    on_round_end = partialmethod(_call, "on_round_end")
    on_run_end = partialmethod(_call, "on_run_end")
    on_run_skipped = partialmethod(_call, "on_run_skipped")
    on_timing_turn = partialmethod(_call, "on_timing_turn")
    on_end = partialmethod(_call, "on_end")


@contextmanager
def following(callback: Callback, configs: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Tell a callback when the runs with these settings begin and when they have ended."""
    try:
        callback.on_begin(configs)
        yield
    finally:
        callback.on_end()
