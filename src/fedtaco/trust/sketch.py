"""Sketches: short vectors of signed sums of coordinates, which nearly preserve norms and angles.

Sketching is linear: the sketch of a sum of vectors is the sum of their sketches.
"""

from functools import lru_cache

import torch
from torch import Tensor

MAX_SIZE = 8191
"""Maximum size of a sketch. It is prime, so that the sums mix different positions within the rows of a layer."""


def sketch_size(length: int) -> int:
    """Return the size of the sketch of a vector with ``length`` coordinates."""
    return min(length, MAX_SIZE)


def sketch(rows: Tensor, size: int = MAX_SIZE) -> Tensor:
    """Reduce rows (n, d) to (n, size): coordinate j, with a random sign, is added to entry j mod size.

    Rows with at most ``size`` coordinates are returned unchanged.

    >>> sketch(torch.ones(2, 3))
    tensor([[1., 1., 1.],
            [1., 1., 1.]])
    """
    length = rows.shape[1]
    if length <= size:
        return rows
    sums, signs = rows.new_zeros(len(rows), size), _signs(length, rows.dtype)
    for start in range(0, length, size):
        part = rows[:, start : start + size]
        width = part.shape[1]
        sums[:, :width].addcmul_(part, signs[start : start + width])
    return sums


def coordinates_per_entry(length: int) -> Tensor:
    """Return how many of a vector's ``length`` coordinates are added in each entry of its sketch.

    >>> coordinates_per_entry(3)
    tensor([1, 1, 1])
    """
    return torch.arange(length).remainder(MAX_SIZE).bincount()


@lru_cache(maxsize=4)
def _signs(length: int, dtype: torch.dtype) -> Tensor:
    """Return random signs, which depend on the length alone: they are the same in every run."""
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, 2, (length,), generator=generator).mul_(2).sub_(1).to(dtype)
