"""Record a run, simulated or on Flower: history, run folder, checkpoints, models and summary."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any

from torch import nn

from fedtaco.errors import InvalidInput, RunStopped, StopTraining
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel
from fedtaco.records import ClientEvaluation, Diagnostics, History, PartitionRecord, RunFolder
from fedtaco.records.summary import summarize
from fedtaco.run_state import FinishedRound, RunState
from fedtaco.runs.library_versions import current_versions, record_versions
from fedtaco.runs.result import Result
from fedtaco.runs.state_arrays import changed_memories, restore_state, shared_arrays, to_arrays
from fedtaco.runs.state_structure import require_structure
from fedtaco.settings.run_spec import RunSpec

CHECKPOINT_SHARE = 0.03
"""Fraction of a run's time that checkpoints may take. A killed run repeats the rounds after its last checkpoint."""


class Recorder:
    """Keeps the history of a run and, if it has a folder, writes everything there.

    Parameters
    ----------
    folder
        The run folder, or ``None``.
    spec
        The run.
    partition
        Which client holds which samples.
    every_round
        Whether to write a checkpoint after every round, instead of only as often as its cost allows.
    """

    def __init__(
        self,
        folder: RunFolder | None,
        spec: RunSpec,
        partition: PartitionRecord,
        *,
        every_round: bool = False,
    ) -> None:
        self.folder, self.spec, self.partition, self.every_round = folder, spec, partition, every_round
        self._target = folder
        """The folder to which records are written; another one until the run replaces an earlier one in ``folder``."""
        self.history = History()
        self.diagnostics = Diagnostics() if spec.settings["diagnose"] else None
        self.ran_by: Mapping[str, Any] = {}
        """The engine and library versions; for a resumed run, as its folder recorded them before."""
        self._next_checkpoint = 0.0

    def claim(self, *, resume: bool, overwrite: bool) -> AbstractContextManager[None]:
        """Check that the folder may be used, and lock it until the returned context exits."""
        if self.folder is None:
            return nullcontext()
        return self.folder.claim(self.spec.to_stored(), resume=resume, overwrite=overwrite)

    def begin(
        self, initial: RunState, ran_by: Mapping[str, Any], *, resume: bool, client_memory: NamedTensors | None = None
    ) -> RunState:
        """Start the records, or continue those in the folder; return the state from which to run.

        Parameters
        ----------
        initial
            The state before the first round.
        ran_by
            The engine, as the folder records it.
        resume
            Whether to continue the run in the folder, if there is one.
        client_memory
            The memory of a new client, whose structure stored memories must have.

        Raises
        ------
        InvalidInput
            If a file in the folder is damaged, or it belongs to other data or another model.
        """
        self.ran_by = {**ran_by, "versions": [current_versions(1)]}
        self.state: RunState = initial
        self._saved: RunState = initial
        if self.folder is None:
            return initial
        stored = self.folder.load_checkpoint() if resume and self.folder.exists() else None
        if stored is None:
            self._target = self.folder.start({**self.spec.to_stored(), "ran_by": self.ran_by}, self.partition)
            return initial
        if not self.folder.partition().equals(self.partition):
            raise InvalidInput(
                f"The partition in {self.folder.path} is not the one that its settings give now, so the data have "
                "changed; restore the data, or start the run again (overwrite)."
            )
        state = restore_state(self.folder.path, initial, *stored)
        require_structure(self.folder.path, initial, state, client_memory or {})
        self.state = self._saved = state
        self.history, self.diagnostics = self.folder.rewind()
        self.ran_by = {**self.ran_by, **self.folder.config()["ran_by"]}
        if state.round < self.spec.settings["rounds"]:
            record_versions(self.folder, state.round + 1)
        return state

    def add(self, finished: FinishedRound) -> None:
        """Record a finished round, and write a checkpoint if one is due."""
        self.history.rounds.append(finished.record)
        self.history.clients.extend(finished.clients)
        if self.diagnostics is not None and finished.diagnostics is not None:
            self.diagnostics.rounds.append(finished.diagnostics)
        if self._target is not None:
            self._target.append_round(finished.record, finished.clients, finished.diagnostics)
        self.state = finished.state
        if self.every_round or monotonic() >= self._next_checkpoint:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save the state, unless it is already saved."""
        if self.folder is None or self._target is None or self._saved is self.state:
            return
        started = monotonic()
        memories = changed_memories(self._saved, self.state)
        self._target.save_checkpoint(self.state.round, shared_arrays(self.state), memories)
        if self._target is not self.folder:
            self.folder.replace(self._target)
            self.folder.rewind()
            self._target = self.folder
        self._saved, ended = self.state, monotonic()
        self._next_checkpoint = ended + (ended - started) * (1 / CHECKPOINT_SHARE - 1)

    def current_model(self, model: FlatModel) -> nn.Module:
        """Return the global model after the last recorded round, or the initial one."""
        return model.to_module(self.state.server.weights, self.state.buffers)

    def finish(
        self,
        model: FlatModel,
        ending: RunStopped | StopTraining | None,
        *,
        evaluations: list[ClientEvaluation] | None = None,
        test_counts: Sequence[int] = (),
        samples: tuple[int, int] | None = None,
        average_accuracy: float | None = None,
        output_accuracy: float | None = None,
        **notes: Any,
    ) -> Result:
        """Write the models and the summary of a run that has ended.

        Parameters
        ----------
        model
            The model that was trained.
        ending
            Why the run did not continue; ``None`` if it finished.
        evaluations
            The final model on each client's own samples.
        test_counts
            Number of evaluated test samples of each class; empty if unknown.
        samples
            Number of evaluated test samples, and of all; ``None`` if unknown.
        average_accuracy
            Test accuracy of the average of the last models.
        output_accuracy
            Test accuracy of the method's output, if a callback ended the run; otherwise the last round contains it.
        **notes
            Further entries of the summary, such as the engine in words.

        Returns
        -------
        Result
            The result, with the summary as ``summary.json`` contains it.
        """
        config, method = self.spec.config, self.spec.method
        is_last = self.state.round >= config["rounds"]
        summary = {
            "method": method.name,
            **{name: config[name] for name in ("dataset", "seed", "parameters", "personal", "compress")},
            "stopped": str(ending) if isinstance(ending, RunStopped) else None,
            "ended_early": str(ending) if isinstance(ending, StopTraining) and not is_last else None,
            **notes,
            "over_correction": None if self.diagnostics is None else self.diagnostics.summarize(),
            **summarize(self.history, config["target"], self.partition, test_counts, samples, evaluations or []),
            "average_accuracy": average_accuracy,
        }
        if output_accuracy is not None:
            summary["output_accuracy"] = output_accuracy
        if config["personal"] is not None:
            summary["predicts_one_class"] = False  # clients have models of their own, and accuracies are means
        result = Result.of(method, model, self.state, self.history, summary, evaluations, self.diagnostics)
        if self.folder is not None and self._target is not None:
            self._target.save_model(to_arrays(result.model.state_dict()))
            if result.output_model is not result.model:
                self._target.save_model(to_arrays(result.output_model.state_dict()), "output")
            if result.average_model is not None:
                self._target.save_model(to_arrays(result.average_model.state_dict()), "average")
            if evaluations:
                self._target.save_client_evaluations(evaluations)
            self._target.save_summary(summary)
            if self._target is not self.folder:
                self.folder.replace(self._target)
        return result
