"""How a model is called with inputs of any structure, and which part of its output the loss gets."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedtaco.inputs import Inputs


def call_arguments(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return the positional and keyword arguments of a call: ``model(x)``, ``model(*x)`` or ``model(**x)``."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def logits_of(output: Any) -> Tensor:
    """Return the ``logits`` of an output that has such an entry or attribute, as in transformers, else the output."""
    if isinstance(output, Tensor):
        return output
    logits: Tensor = output.get("logits", output) if isinstance(output, Mapping) else getattr(output, "logits", output)
    return logits
