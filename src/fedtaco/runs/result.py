"""What a run returns: its history and the trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_model as _load
from safetensors.torch import save_model as _save
from torch import nn

from fedtaco.methods import Method
from fedtaco.models import FlatModel
from fedtaco.records import History
from fedtaco.server import RunState


@dataclass(frozen=True)
class Result:
    """The history and models of a run.

    ``model`` is the global model w. ``output_model`` is the one the method returns: the same for all
    methods but TACO, whose z looks one step ahead. Curves and targets are those of ``model``.
    """

    history: History
    model: nn.Module
    output_model: nn.Module

    @classmethod
    def of(cls, method: Method, model: FlatModel, state: RunState, history: History) -> Result:
        """Return the result of a run that ended in ``state``."""
        trained = model.to_module(state.server.weights, state.buffers)
        output = method.output(state.server)
        same = output is state.server.weights
        return cls(history, trained, trained if same else model.to_module(output, state.buffers))

    def save(self, path: str | Path) -> None:
        """Write the global model as safetensors; :func:`load_model` reads it back."""
        save_model(self.model, path)


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write a model's parameters and buffers as safetensors."""
    _save(model, str(path))


def load_model(model: nn.Module, path: str | Path) -> nn.Module:
    """Read parameters and buffers into ``model``, which must have the architecture that was saved.

    Returns
    -------
    nn.Module
        The same ``model``.
    """
    _load(model, str(path))
    return model
