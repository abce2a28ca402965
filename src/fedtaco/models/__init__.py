"""Models by name, and models whose weights are one vector or a stack of vectors."""

import math
import re
from itertools import pairwise

import torch
from torch import nn

from fedtaco.errors import InvalidInput, unknown
from fedtaco.models.cnn import cnn
from fedtaco.models.flat import FlatModel, Loss
from fedtaco.models.lstm import lstm
from fedtaco.models.mlp import mlp
from fedtaco.models.personal import load_tensors, split_memory
from fedtaco.models.resnet import NORMS, resnet18
from fedtaco.models.stacked import Stack, Unstackable, stack_linear, stack_model
from fedtaco.printable import printable
from fedtaco.registry import names_code

MODELS = ("mlp", "cnn", "resnet18", "lstm")
MAX_PARAMETERS = 100_000_000
"""Maximum number of parameters of a model by name."""


def is_own_model(spec: str) -> bool:
    """Return whether a text names a user's own class or function, as ``package.module:name``, and not a model."""
    return names_code(spec, MODELS)


def check_model(spec: str) -> None:
    """Check that :func:`build_model` knows a model.

    Parameters
    ----------
    spec : str
        Name of the model, with an option for some: ``mlp``, ``mlp:64-32``, ``cnn``, ``resnet18``,
        ``resnet18:batchnorm`` or ``lstm``.

    Raises
    ------
    InvalidInput
        If there is no such model, or its option is invalid.

    Examples
    --------
    >>> check_model("mlp:64-32")
    """
    name, colon, option = spec.partition(":")
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    if name == "mlp" and colon and not re.fullmatch(r"[1-9][0-9]{0,8}(-[1-9][0-9]{0,8})*", option):
        raise InvalidInput(f"model is '{printable(spec)}'; write hidden layers as mlp:64-32.")
    if name == "resnet18" and colon and option not in NORMS:
        raise unknown("norm for resnet18", option, NORMS)
    if name in ("cnn", "lstm") and colon:
        raise InvalidInput(f"model is '{printable(spec)}'; {name} takes no option.")


def build_model(spec: str, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Build a model by name.

    Parameters
    ----------
    spec : str
        Name of the model, such as ``cnn`` or ``mlp:64-32``; see :func:`check_model`.
    shape : tuple of int
        Shape of one input.
    classes : int
        Number of classes.
    seed : int
        Seed of the initial weights.

    Returns
    -------
    torch.nn.Module
        The model, which returns one score per class.

    Raises
    ------
    InvalidInput
        If there is no such model, or it cannot take inputs of this shape.

    Examples
    --------
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
        hidden = [int(part) for part in option.split("-")] if option else [32, 16, 8]
        size = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise([math.prod(shape), *hidden, classes]))
        if size > MAX_PARAMETERS:
            raise InvalidInput(
                f"model is '{printable(spec)}' with {size:,} parameters; at most {MAX_PARAMETERS:,} are possible."
            )
        return mlp(math.prod(shape), classes, hidden)


__all__ = [
    "MAX_PARAMETERS",
    "FlatModel",
    "Loss",
    "Stack",
    "Unstackable",
    "build_model",
    "check_model",
    "is_own_model",
    "load_tensors",
    "split_memory",
    "stack_linear",
    "stack_model",
]
