"""Sketches: short vectors of signed sums of coordinates that nearly preserve lengths and angles.

Sketching is linear: the sketch of a sum of vectors is the sum of their sketches.
"""

from functools import lru_cache

import torch
from torch import Tensor

MAX_SIZE = 8191
"""Numbers in a sketch; a prime, so that coordinates at the same position of different rows of a layer are spread."""


def sketch_size(length: int) -> int:
    return min(length, MAX_SIZE)


def sketch(rows: Tensor, size: int = MAX_SIZE) -> Tensor:
    """Reduce rows (n, d) to (n, size): coordinate j, with a random sign, is added to entry j mod size.

    Rows that are no longer than a sketch are returned as they are.

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


@lru_cache(maxsize=4)
def _signs(length: int, kind: torch.dtype) -> Tensor:
    """Return the signs, the same for all vectors of a length in every run."""
    coins = torch.Generator().manual_seed(length)
    return torch.randint(0, 2, (length,), generator=coins).mul_(2).sub_(1).to(kind)
