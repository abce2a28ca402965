"""How the uploads of one round lie to each other: norms, cosines, and the paper's Eq. 7.

Everything is reduced in float64 over blocks of columns, so that no second copy of the update
matrix is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Geometry:
    """Norm of each upload, and its cosine with the unweighted mean upload (0 where undefined)."""

    norms: Tensor
    cosines: Tensor

    @property
    def alpha(self) -> Tensor:
        """Correction coefficients, Eq. 7: (1 - share of the norms) * max(cosine, 0).

        A client alone in its round has nobody to be tailored against: its coefficient is 1, no correction.

        >>> Geometry(torch.tensor([3.0, 1.0]), torch.tensor([0.5, -0.2])).alpha
        tensor([0.1250, 0.0000])
        """
        if len(self.norms) == 1:
            return torch.ones_like(self.norms)
        total = self.norms.sum()
        shares = self.norms / total if total > 0 else torch.zeros_like(self.norms)
        return (1 - shares) * self.cosines.clamp(min=0)


def geometry_of(matrix: Tensor) -> Geometry:
    """The geometry of the rows of ``matrix`` in one pass."""
    dots = torch.zeros(len(matrix), dtype=torch.float64, device=matrix.device)
    squares = torch.zeros_like(dots)
    mean_square = torch.zeros((), dtype=torch.float64, device=matrix.device)
    for _, block in _column_blocks(matrix):
        mean = block.mean(0)
        dots += block @ mean
        squares += block.square().sum(1)
        mean_square += mean @ mean
    norms = squares.sqrt()
    lengths = norms * mean_square.sqrt()
    cosines = torch.where(lengths > 0, dots / lengths, torch.zeros_like(dots))
    return Geometry(norms, cosines.clamp(-1, 1))


def weighted_sum(weights: Tensor, matrix: Tensor) -> Tensor:
    """Sum of weights[i] * matrix[i], accumulated in float64 and returned in the matrix's dtype."""
    result = torch.empty(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    for columns, block in _column_blocks(matrix):
        result[columns] = (weights.to(block) @ block).to(matrix.dtype)
    return result


def _column_blocks(matrix: Tensor) -> Iterator[tuple[slice, Tensor]]:
    rows, columns = matrix.shape
    width = max(1, BLOCK_NUMBERS // max(1, rows))
    for start in range(0, columns, width):
        block = slice(start, start + width)
        yield block, matrix[:, block].double()
