"""Short stand-ins for long vectors: sums of signed coordinates, which nearly keep lengths and angles.

A sketch is linear: a mixture of vectors stays the same mixture of their sketches.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

LONGEST = 8191
"""Numbers in a sketch; a prime, so that coordinates at like places of a layer do not meet in one sum."""


def sketch_size(length: int) -> int:
    return min(length, LONGEST)


def sketch(rows: Tensor, size: int = LONGEST) -> Tensor:
    """The rows (n, d) as (n, size): coordinate j, with a random sign, is added to number j mod size.

    Rows no longer than a sketch stand for themselves.

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
    """The same for all vectors of a length, in every run."""
    coins = torch.Generator().manual_seed(length)
    return torch.randint(0, 2, (length,), generator=coins).mul_(2).sub_(1).to(kind)
