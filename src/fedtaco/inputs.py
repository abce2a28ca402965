"""Inputs of a model: one tensor, several tensors in a tuple, or several tensors by name in a dictionary."""

from collections.abc import Callable, Sequence

from torch import Tensor

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Batch = tuple[Inputs, Tensor]
"""Inputs and targets."""


def map_inputs(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """Apply a function to each tensor.

    >>> import torch
    >>> map_inputs(Tensor.float, {"codes": torch.tensor([1, 2])})
    {'codes': tensor([1., 2.])}
    """
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, tuple):
        return tuple(function(tensor) for tensor in inputs)
    return {name: function(tensor) for name, tensor in inputs.items()}


def tensors_of(inputs: Inputs) -> list[Tensor]:
    """Return the tensors of inputs, in their order."""
    if isinstance(inputs, Tensor):
        return [inputs]
    return list(inputs) if isinstance(inputs, tuple) else list(inputs.values())


def join_inputs(join: Callable[[list[Tensor]], Tensor], parts: Sequence[Inputs]) -> Inputs:
    """Join inputs of the same structure tensor by tensor, for instance with ``torch.stack``.

    >>> import torch
    >>> join_inputs(torch.cat, [(torch.tensor([1]), torch.tensor([2])), (torch.tensor([3]), torch.tensor([4]))])
    (tensor([1, 3]), tensor([2, 4]))
    """
    joined = [join(list(tensors)) for tensors in zip(*map(tensors_of, parts), strict=True)]
    first = parts[0]
    if isinstance(first, Tensor):
        return joined[0]
    return tuple(joined) if isinstance(first, tuple) else dict(zip(first, joined, strict=True))


def shapes_of(batch: Batch) -> tuple[object, ...]:
    """Return what batches must have in common to be stacked: names or number of inputs, and shapes of a sample.

    >>> import torch
    >>> shapes_of((torch.zeros(5, 3), torch.zeros(5)))
    (None, torch.Size([3]), torch.Size([]))
    """
    x, y = batch
    names = tuple(x) if isinstance(x, dict) else None
    return names, *(tensor.shape[1:] for tensor in (*tensors_of(x), y))
