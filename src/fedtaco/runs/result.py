"""The result of a run: its history and the trained model."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from safetensors.torch import load_model as _load
from safetensors.torch import save_model as _save
from torch import nn

from fedtaco.errors import InvalidInput
from fedtaco.files import reading
from fedtaco.methods import Method
from fedtaco.models import FlatModel
from fedtaco.records import ClientEvaluation, History
from fedtaco.server import RunState


@dataclass(frozen=True)
class Result:
    """The history and models of a run.

    ``model`` is the global model w, to which the history refers. ``output_model`` is the model that the method
    returns: the same one, unless the method defines another, as TACO does with z.
    """

    history: History
    model: nn.Module
    output_model: nn.Module
    client_evaluations: list[ClientEvaluation] = field(default_factory=list)
    """The global model on each client's own samples; empty if none were held out."""

    @classmethod
    def of(
        cls,
        method: Method,
        model: FlatModel,
        state: RunState,
        history: History,
        evaluations: list[ClientEvaluation] | None = None,
    ) -> Result:
        """Return the result of a run that ended in ``state``."""
        trained = model.to_module(state.server.weights, state.buffers)
        output = method.output(state.server)
        same = output is state.server.weights
        returned = trained if same else model.to_module(output, state.buffers)
        return cls(history, trained, returned, evaluations or [])

    def save(self, path: str | Path) -> None:
        """Write the global model as a safetensors file, which :func:`load_model` reads."""
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
