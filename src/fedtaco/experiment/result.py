"""What a run gives back: its history and its trained model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_model as _load
from safetensors.torch import save_model as _save
from torch import nn

from fedtaco.records import History


@dataclass(frozen=True)
class Result:
    """A finished run.

    ``model`` is the global model w; ``output_model`` the one the method returns, which is the same
    for all but TACO, whose z looks one step ahead. Curves and targets are those of ``model``.
    """

    history: History
    model: nn.Module
    output_model: nn.Module

    def save(self, path: str | Path) -> None:
        """Write the global model as safetensors; :func:`load_model` reads it back."""
        save_model(self.model, path)


def save_model(model: nn.Module, path: str | Path) -> None:
    """Write a model's parameters and buffers as safetensors."""
    _save(model, str(path))


def load_model(model: nn.Module, path: str | Path) -> nn.Module:
    """Read parameters and buffers into ``model``, which must have the architecture that was saved."""
    _load(model, str(path))
    return model
