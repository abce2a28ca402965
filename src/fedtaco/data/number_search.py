"""Search samples for numbers that are not finite or unusually large."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedtaco.data.samples import TensorSamples
from fedtaco.errors import InvalidInput
from fedtaco.inputs import Batch, tensors_of

LARGE = 1e9
"""Absolute value above which a number is unusually large; its fourth power nearly overflows in float32."""


class NumberSearch:
    """Searches the samples of many clients in memory, which may be slices of the same tensors.

    Memory that several tensors share is read once, and again only for clients that may hold such a number.
    """

    def __init__(self) -> None:
        self._largest: dict[tuple[int, torch.dtype], float] = {}
        """Largest absolute value in each piece of memory, by its address and type; NaN if it contains one."""

    def find_large(self, samples: TensorSamples, owner: str) -> set[int]:
        """Return the index of the sample with the largest number in each tensor, if it is unusually large.

        Raises
        ------
        InvalidInput
            If a number is not finite.
        """
        found: set[int] = set()
        for kind, tensor in _searchable((samples.x, samples.y)):
            if not self._largest_in_memory(tensor) <= LARGE:  # also if it is NaN
                own = tensor if samples.chosen is None else tensor[samples.chosen]
                found |= _find_large(kind, own, range(len(own)), owner)
        return found

    def _largest_in_memory(self, tensor: Tensor) -> float:
        """Return the largest absolute value in the memory that a tensor is a part of."""
        memory = tensor.untyped_storage()
        key = memory.data_ptr(), tensor.dtype
        if key not in self._largest:
            whole = tensor.as_strided((memory.nbytes() // tensor.itemsize,), (1,), 0)
            self._largest[key] = float(torch.stack(whole.aminmax()).abs().amax())
        return self._largest[key]


def find_large_in_batch(batch: Batch, rows: Sequence[int], owner: str) -> set[int]:
    """Return which samples of a batch have unusually large numbers, as :meth:`NumberSearch.find_large` does.

    Parameters
    ----------
    batch
        Inputs and targets.
    rows
        Index of each sample of the batch among those of its owner.
    owner
        The name of the owner.
    """
    return set[int]().union(*(_find_large(kind, tensor, rows, owner) for kind, tensor in _searchable(batch)))


def describe_sizes(batch: Batch, rows: Sequence[int]) -> str:
    """Return the largest absolute value of inputs and of targets in words; empty if they are integers.

    >>> describe_sizes((torch.tensor([[1.0, -2.0], [0.5, 1e30]]), torch.tensor([0, 1])), rows=[0, 7])
    'inputs up to 1e+30 (sample 7)'
    """
    largest: dict[str, tuple[float, int]] = {}
    for kind, tensor in _searchable(batch):
        sizes = _size_by_row(tensor)
        row = int(sizes.argmax())
        largest[kind] = max(largest.get(kind, (0.0, 0)), (float(sizes[row]), rows[row]))
    return " and ".join(f"{kind.lower()}s up to {size:.3g} (sample {row})" for kind, (size, row) in largest.items())


def is_searchable(tensor: Tensor) -> bool:
    """Return whether a tensor contains floating-point numbers; torch does not compare those of one byte."""
    return tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() > 0


def _searchable(batch: Batch) -> list[tuple[str, Tensor]]:
    """Return the tensors of a batch that can be searched, each with what it contains."""
    x, y = batch
    named = [*(("Input", tensor) for tensor in tensors_of(x)), ("Target", y)]
    return [(kind, tensor.detach()) for kind, tensor in named if is_searchable(tensor)]


def _find_large(kind: str, values: Tensor, rows: Sequence[int], owner: str) -> set[int]:
    """Return the row with the largest number if it is unusually large; raise InvalidInput if one is not finite."""
    sizes = _size_by_row(values)
    wrong = (~sizes.isfinite()).nonzero()
    if len(wrong):
        row = int(wrong[0])
        value = float(values[row][~values[row].isfinite()][0])
        raise InvalidInput(
            f"{kind} {rows[row]} of {owner} contains {value:g}; remove such samples, or replace missing values by "
            "numbers."
        )
    largest = int(sizes.argmax())
    return {rows[largest]} if sizes[largest] > LARGE else set()


def _size_by_row(values: Tensor) -> Tensor:
    """Return the largest absolute value in each row; NaN if it contains one."""
    return values.reshape(len(values), -1).abs().amax(1)
