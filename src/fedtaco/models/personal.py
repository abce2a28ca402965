"""Personal layers: the parameters and buffers of a model that every client keeps for itself, chosen by patterns."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from fedtaco.errors import InvalidInput
from fedtaco.printable import printable

PERSONAL = "personal/"
"""Prefix of the names under which a client's memory holds its personal layers."""
WEIGHTS, BUFFERS = f"{PERSONAL}weights", f"{PERSONAL}buffers"
NAMES_SHOWN = 6
"""Number of names that a message lists."""


def personal_names(module: nn.Module, patterns: Sequence[str]) -> frozenset[str]:
    """Return the names of the trainable parameters and floating-point buffers that some pattern matches.

    Parameters
    ----------
    module : torch.nn.Module
        The model.
    patterns : sequence of str
        Shell-style patterns of names as ``module.named_parameters()`` and ``module.named_buffers()`` give them.

    Raises
    ------
    InvalidInput
        If a pattern matches nothing, or no trainable parameter would be left to share.

    Examples
    --------
    >>> sorted(personal_names(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), ["1.*"]))
    ['1.bias', '1.running_mean', '1.running_var', '1.weight']
    """
    trainable = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    candidates = [*trainable, *(name for name, buffer in module.named_buffers() if buffer.is_floating_point())]
    matches = {pattern: [name for name in candidates if fnmatchcase(name, pattern)] for pattern in patterns}
    for pattern, matched in matches.items():
        if not matched:
            raise InvalidInput(
                f"personal is '{printable(pattern)}', which matches no trainable parameter or floating-point buffer of "
                f"the model; it has {_listed(candidates)}."
            )
    found = frozenset(name for matched in matches.values() for name in matched)
    if found.issuperset(trainable):
        raise InvalidInput(
            f"personal is '{printable(','.join(patterns))}', which matches every trainable parameter "
            f"({_listed(trainable)}); leave at least one to share."
        )
    return found


def load_tensors(module: nn.Module, named: Mapping[str, Tensor]) -> None:
    """Copy values into parameters and buffers of a module, by name."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        for name, value in named.items():
            tensors[name].copy_(value)


def split_memory(memory: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the parts of a client's memory that belong to the method, whose names have no slash, and to its layers."""
    personal = {name: tensor for name, tensor in memory.items() if name.startswith(PERSONAL)}
    return {name: tensor for name, tensor in memory.items() if "/" not in name}, personal


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_SHOWN])
    left = len(names) - NAMES_SHOWN
    return f"{shown} and {left} more" if left > 0 else shown
