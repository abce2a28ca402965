"""The result of a run: its history and the trained model."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_model as _load, save_model as _save
from torch import nn

from fedtaco.errors import InvalidInput
from fedtaco.files import reading
from fedtaco.methods import Method, NamedTensors
from fedtaco.models import FlatModel, load_tensors
from fedtaco.records import ClientEvaluation, Diagnostics, History
from fedtaco.report.results import build_results
from fedtaco.report.table_formats import data_frame, results_table
from fedtaco.run_state import RunState
from fedtaco.runs.personal_layers import personal_layers


@dataclass(frozen=True, repr=False)
class Result:
    """The history, models and summary of a run.

    ``model`` is the global model w, to which the history refers. ``output_model`` is the model that the method
    returns: the same one, unless the method defines another, as TACO does with z. Personal layers have their initial
    values in both; those of a client are in its own model, :meth:`client_model`. ``summary`` contains the figures of
    ``summary.json``, such as ``rounds_to_target``.
    """

    history: History
    model: nn.Module
    output_model: nn.Module
    summary: Mapping[str, Any]
    personal_layers: Sequence[NamedTensors] = ()
    """Personal parameters and buffers of each client by name, empty mappings if no layer is personal."""
    client_evaluations: list[ClientEvaluation] = field(default_factory=list)
    """Each client's model on the client's own samples; empty if none were held out."""
    diagnostics: Diagnostics | None = None
    """The diagnostics of each round; ``None`` without the setting ``diagnose``."""
    average_model: nn.Module | None = None
    """The average of the last models; ``None`` unless ``average_last`` is set and the run reached these rounds."""

    @classmethod
    def of(
        cls,
        method: Method,
        model: FlatModel,
        state: RunState,
        history: History,
        summary: Mapping[str, Any],
        evaluations: list[ClientEvaluation] | None = None,
        diagnostics: Diagnostics | None = None,
    ) -> Result:
        """Return the result of a run that ended in ``state``."""
        trained = model.to_module(state.server.weights, state.buffers)
        output = method.output(state.server)
        same = output is state.server.weights
        returned = trained if same else model.to_module(output, state.buffers)
        personal = personal_layers(model, state.memories, state.clients)
        average = None if state.averaged is None else model.to_module(*state.averaged)
        return cls(history, trained, returned, summary, personal, evaluations or [], diagnostics, average)

    def client_model(self, client: int) -> nn.Module:
        """Return a client's own model: the global model with the personal layers of this client.

        Parameters
        ----------
        client
            Number of the client, from 0.

        Returns
        -------
        nn.Module
            A copy of the global model if no layer is personal. Personal layers have their initial values if the client
            never took part.

        Raises
        ------
        InvalidInput
            If there is no such client.
        """
        if client not in range(len(self.personal_layers)):
            raise InvalidInput(f"client is {client}; it must be below {len(self.personal_layers)} and not negative.")
        module = copy.deepcopy(self.model)
        load_tensors(module, self.personal_layers[client])
        return module

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row per round; raise InvalidInput if pandas is not installed."""
        return data_frame(self.history.table())

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw the test accuracy over rounds.

        Parameters
        ----------
        path
            PDF, PNG or SVG file to write; ``None`` writes nothing.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        InvalidInput
            If matplotlib is not installed, or the file cannot be written.
        """
        from fedtaco.report.plots import plot_accuracy

        return plot_accuracy({self.summary["method"]: [self.history]}, path, self.summary["target"])

    def __repr__(self) -> str:
        accuracy = self.summary["final_accuracy"]
        measured = "" if accuracy is None else f", accuracy {accuracy:.1%}"
        return (
            f"<Result of {self.summary['method']} on {self.summary['dataset']}: {len(self.history)} rounds{measured}>"
        )

    def _repr_html_(self) -> str:
        return results_table(build_results([self.summary])).to_html()

    def save(self, path: str | Path) -> None:
        """Write the global model as a safetensors file, which :func:`load_model` reads.

        Raises
        ------
        InvalidInput
            If the folder of the file does not exist.
        """
        if not Path(path).parent.is_dir():
            raise InvalidInput(f"Cannot write {path}: there is no folder {Path(path).parent}.")
        save_model(self.model, path)


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write a model's parameters and buffers as a safetensors file.

    Parameters
    ----------
    model
        The model to save.
    path
        File to write.
    """
    _save(model, str(path))


def load_model(model: nn.Module, path: str | Path) -> nn.Module:
    """Read parameters and buffers from a safetensors file into ``model``.

    Parameters
    ----------
    model
        A model of the architecture that was saved; it is changed in place.
    path
        File to read.

    Returns
    -------
    nn.Module
        The same ``model``.

    Raises
    ------
    InvalidInput
        If the file cannot be read, or contains another architecture.
    """
    with reading(Path(path)):
        try:
            _load(model, str(path))
        except RuntimeError as error:
            raise InvalidInput(f"{path} is not of the architecture of the given model: {error}") from error
    return model
