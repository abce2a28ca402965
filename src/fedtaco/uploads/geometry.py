"""Norms and cosines of the uploads of one round, and the paper's Eq. 7.

Sums are computed in the matrix's own dtype within a block of columns, which fits into the CPU cache, and in
float64 across blocks; the update matrix is never copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK_ENTRIES = 1 << 21
"""Number of matrix entries in a block."""


@dataclass(frozen=True)
class Geometry:
    """Norm of each upload, and its cosine with the unweighted mean upload (0 if undefined)."""

    norms: Tensor
    cosines: Tensor

    @property
    def alpha(self) -> Tensor:
        """Correction coefficients, Eq. 7: (1 - norm / sum of norms) * max(cosine, 0).

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
    """Compute the norm of each row of a matrix and its cosine with the mean row, in one pass.

    Parameters
    ----------
    matrix : Tensor
        Uploads, one row per client.

    Returns
    -------
    Geometry
        The norms and cosines, in float64.

    Examples
    --------
    >>> geometry_of(torch.tensor([[3.0, 4.0], [3.0, 4.0]])).norms
    tensor([5., 5.], dtype=torch.float64)
    """
    mean_weights = matrix.new_full((len(matrix),), 1 / len(matrix))
    dots, squares = torch.zeros(2, len(matrix), dtype=torch.float64)
    for block in _column_blocks(matrix):
        mean = mean_weights @ block
        dots += block @ mean
        squares += torch.linalg.vector_norm(block, dim=1).double().square_()
    norms = squares.sqrt()
    # The squared norm of the mean row equals the mean of its dot products with the rows.
    products = norms * dots.mean().clamp(min=0).sqrt()
    cosines = torch.where(products > 0, dots / products, torch.zeros_like(dots))
    return Geometry(norms, cosines.clamp(-1, 1))


def gram_matrix(matrix: Tensor) -> Tensor:
    """Return the dot product of each pair of rows, in float64.

    >>> gram_matrix(torch.tensor([[3.0, 0.0], [1.0, 1.0]]))
    tensor([[9., 3.],
            [3., 2.]], dtype=torch.float64)
    """
    products = torch.zeros(len(matrix), len(matrix), dtype=torch.float64)
    for block in _column_blocks(matrix):
        products += block @ block.T
    return products


def pairwise_cosines(matrix: Tensor) -> Tensor:
    """Return the cosine of each pair of rows, in float64; 0 if one of them is zero.

    >>> pairwise_cosines(torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))[0]
    tensor([1.0000, 0.7071, 0.0000], dtype=torch.float64)
    """
    products = gram_matrix(matrix)
    norms = products.diagonal().sqrt()
    scale = norms[:, None] * norms
    return torch.where(scale > 0, products / scale, torch.zeros_like(products)).clamp_(-1, 1)


def weighted_sum(weights: Tensor, matrix: Tensor) -> Tensor:
    """Return the sum of ``weights[i] * matrix[i]``, computed in the dtype of the matrix.

    Parameters
    ----------
    weights : Tensor
        One weight per row.
    matrix : Tensor
        Vectors, one per row.

    Returns
    -------
    Tensor
        The weighted sum of the rows.

    Examples
    --------
    >>> weighted_sum(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([2., 3.])
    """
    return weights.to(matrix.dtype) @ matrix


def _column_blocks(matrix: Tensor) -> Iterator[Tensor]:
    yield from matrix.split(max(1, BLOCK_ENTRIES // len(matrix)), dim=1)
