"""The lifecycle of a run, in a simulation and on Flower: resume, rounds, records, callbacks, final evaluation."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fedtaco.errors import RunStopped, StopTraining
from fedtaco.federation import Federation
from fedtaco.records.formatting import pluralize
from fedtaco.run_state import RunState
from fedtaco.runs.callbacks import Callback, Run
from fedtaco.runs.recorder import Recorder
from fedtaco.runs.result import Result


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start."""

    federation: Federation
    recorder: Recorder
    engine: str
    """The engine in words."""
    ran_by: Mapping[str, Any]
    """The engine, as the run folder records it."""
    final_figures: Callable[[RunState, RunStopped | StopTraining | None], Mapping[str, Any]]
    """Returns further arguments of :meth:`Recorder.finish`, given the last state and what ended the run early."""

    def execute(self, callback: Callback, *, resume: bool) -> Result:
        """Run all rounds, or those that are left, and return the result.

        Raises
        ------
        InvalidInput
            If the run in the folder cannot be resumed.
        RunStopped
            If the run cannot continue; its records are kept, and the error contains the history.
        """
        federation, recorder = self.federation, self.recorder
        initial = federation.initial
        instructions = federation.server.train_instructions(initial, torch.arange(1))
        memory = federation.clients.new_memory(instructions)
        state = recorder.begin(initial, self.ran_by, resume=resume, client_memory=memory)
        folder = None if recorder.folder is None else recorder.folder.path
        model = partial(recorder.current_model, federation.model)
        run = Run(recorder.spec.config, folder, self.engine, recorder.history.rounds, model)
        federation.on_evaluation = partial(callback.on_evaluation_begin, run)
        ending: RunStopped | StopTraining | None = None
        try:
            callback.on_run_begin(run)
            with closing(federation.rounds(state)) as rounds:
                for finished in rounds:
                    recorder.add(finished)
                    callback.on_round_end(run, finished.record)
        except (RunStopped, StopTraining) as stop:
            ending = stop
        finally:
            recorder.checkpoint()
        if not isinstance(ending, RunStopped):
            ending = _untrained(recorder) or ending
        figures = self.final_figures(recorder.state, ending)
        result = recorder.finish(federation.model, ending, engine=self.engine, **figures)
        callback.on_run_end(run, result.summary)
        if isinstance(ending, RunStopped):
            ending.history = recorder.history
            raise ending
        return result


def _untrained(recorder: Recorder) -> RunStopped | None:
    """Return the error for a run in which no upload of any round was used; ``None`` if one was."""
    history = recorder.history
    if not len(history) or any(record.cohort > len(record.dropped) for record in history):
        return None
    reasons = Counter(reason for record in history for reason in record.dropped.values())
    return RunStopped(
        f"The model has not been trained: {recorder.spec.method.name} used no reply in "
        f"{pluralize(len(history), 'round')}; the most common reason: {reasons.most_common(1)[0][0]}."
    )
