"""Models by name, and FlatModel."""

import math

import torch
from torch import nn

from fedtaco.errors import InvalidInput, unknown
from fedtaco.models.cnn import cnn
from fedtaco.models.flat import FlatModel, Loss
from fedtaco.models.lstm import lstm
from fedtaco.models.mlp import mlp
from fedtaco.models.resnet import NORMS, resnet18
from fedtaco.models.stacked import Stack, Unstackable, stack_by_hand, stack_model

MODELS = ("mlp", "cnn", "resnet18", "lstm")


def check_model(spec: str) -> None:
    """Refuse a model name that :func:`build_model` could not build."""
    name, colon, option = spec.partition(":")
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if name == "mlp" and colon and not all(part.isdigit() and int(part) > 0 for part in option.split("-")):
        raise InvalidInput(f"model is '{spec}'; write hidden layers as mlp:64-32.")
    if name == "resnet18" and colon and option not in NORMS:
        raise unknown("norm for resnet18", option, NORMS)
    if name in ("cnn", "lstm") and colon:
        raise InvalidInput(f"model is '{spec}'; {name} takes no option.")


def build_model(spec: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The named model for inputs of ``shape``, with weights drawn from ``seed``.

    >>> build_model("mlp:16", (1, 8, 8), 10, seed=0)[1]
    Linear(in_features=64, out_features=16, bias=True)
    """
    check_model(spec)
    name, _, option = spec.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if name == "cnn":
            return cnn(shape, classes)
        if name == "resnet18":
            return resnet18(shape, classes, option or "groupnorm")
        if name == "lstm":
            return lstm(shape, classes)
        hidden = [int(part) for part in option.split("-")] if option else (32, 16, 8)
        return mlp(math.prod(shape), classes, hidden)


__all__ = ["FlatModel", "Loss", "Stack", "Unstackable", "build_model", "check_model", "stack_by_hand", "stack_model"]
