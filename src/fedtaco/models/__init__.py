"""Models by name, and FlatModel."""

from __future__ import annotations

import math

import torch
from torch import nn

from fedtaco.errors import InvalidInput, unknown
from fedtaco.models.flat import FlatModel, Loss
from fedtaco.models.mlp import mlp

MODELS = ("mlp",)


def check_model(spec: str) -> None:
    """Refuse a model name that :func:`build_model` could not build."""
    name, _, option = spec.partition(":")
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if option and not all(part.isdigit() and int(part) > 0 for part in option.split("-")):
        raise InvalidInput(f"model is '{spec}'; write hidden layers as mlp:64-32.")


def build_model(spec: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The named model for inputs of ``shape``, with weights drawn from ``seed``.

    >>> build_model("mlp:16", (8, 8), 10, seed=0)[1]
    Linear(in_features=64, out_features=16, bias=True)
    """
    check_model(spec)
    option = spec.partition(":")[2]
    hidden = [int(part) for part in option.split("-")] if option else (32, 16, 8)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return mlp(math.prod(shape), classes, hidden)


__all__ = ["MODELS", "FlatModel", "Loss", "build_model", "check_model", "mlp"]
