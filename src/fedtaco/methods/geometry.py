"""Norms and cosines of the uploads of one round, and the paper's Eq. 7.

Sums are computed in the matrix's own type within a block of columns, which fits the cache, and in
float64 across blocks; the update matrix is never copied.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_NUMBERS = 1 << 21


@dataclass(frozen=True)
class Geometry:
    """Norm of each upload, and its cosine with the unweighted mean upload (0 if undefined)."""

    norms: Tensor
    cosines: Tensor

    @property
    def alpha(self) -> Tensor:
        """Correction coefficients, Eq. 7: (1 - share of the norms) * max(cosine, 0).

        A client that is alone in its round has the coefficient 1: no correction.

        >>> Geometry(torch.tensor([3.0, 1.0]), torch.tensor([0.5, -0.2])).alpha
        tensor([0.1250, 0.0000])
        """
        if len(self.norms) == 1:
            return torch.ones_like(self.norms)
        total = self.norms.sum()
        shares = self.norms / total if total > 0 else torch.zeros_like(self.norms)
        return (1 - shares) * self.cosines.clamp(min=0)


def geometry_of(matrix: Tensor) -> Geometry:
    """Return the geometry of the rows of ``matrix`` in one pass.

    The squared norm of the mean row equals the mean of its dot products with the rows.
    """
    rows, columns = matrix.shape
    to_mean = matrix.new_full((rows,), 1 / rows)
    dots, squares = torch.zeros(2, rows, dtype=torch.float64)
    width = max(1, BLOCK_NUMBERS // rows)
    for block in (matrix[:, start : start + width] for start in range(0, columns, width)):
        mean = to_mean @ block
        dots += block @ mean
        squares += torch.linalg.vector_norm(block, dim=1).double().square_()
    norms = squares.sqrt()
    lengths = norms * dots.mean().clamp(min=0).sqrt()
    cosines = torch.where(lengths > 0, dots / lengths, torch.zeros_like(dots))
    return Geometry(norms, cosines.clamp(-1, 1))


def weighted_sum(weights: Tensor, matrix: Tensor) -> Tensor:
    """Return the sum of weights[i] * matrix[i]."""
    return weights.to(matrix.dtype) @ matrix
