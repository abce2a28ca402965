"""The vectors that the clients of a round uploaded, behind calls, so that they may be stored anywhere.

Methods, detectors and monitors ask for sums, norms, cosines, dot products and blocks of rows. Nobody takes a whole
matrix, so that a file or several machines can replace the matrices in memory without a change outside this package.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.uploads.geometry import Geometry, geometry_of, gram_matrix, weighted_sum

BLOCK_ROWS = 16
"""Rows per block. Rounding in sums over a row depends on where in memory it begins; with a multiple of 8, rows of a
block's copy in float64 are aligned as in a copy of all rows."""


class UploadedVectors:
    """Named vectors of each client, one row per client; ``update`` holds the U_i.

    Parameters
    ----------
    matrices
        The vectors of all clients, by name.

    Examples
    --------
    >>> vectors = UploadedVectors({"update": torch.tensor([[3.0, 0.0], [1.0, 1.0]])})
    >>> vectors.total(), vectors.dots(torch.tensor([1.0, 2.0]))
    (tensor([4., 1.], dtype=torch.float64), tensor([3., 3.], dtype=torch.float64))
    >>> vectors["update"]
    Traceback (most recent call last):
    fedtaco.errors.InvalidInput: uploads.vectors hands out no whole matrix; call uploads.average(name), or ...
    """

    def __init__(self, matrices: Mapping[str, Tensor]) -> None:
        self._matrices = matrices

    def geometry(self, name: str = "update") -> Geometry:
        """Return the norm of each row and its cosine with the mean row."""
        return geometry_of(self._matrices[name])

    def total(self, name: str = "update") -> Tensor:
        """Return the sum of all rows, in float64."""
        return self._matrices[name].sum(0, dtype=torch.float64)

    def weighted_sum(self, weights: Tensor, name: str = "update", rows: Sequence[int] | None = None) -> Tensor:
        """Return the sum of the rows, or of those at the positions ``rows``, each times its weight."""
        return weighted_sum(weights, self._some(name, rows))

    def gram_matrix(self, name: str = "update", rows: Sequence[int] | None = None) -> Tensor:
        """Return the dot product of each pair of rows, or of those at the positions ``rows``, in float64."""
        return gram_matrix(self._some(name, rows))

    def dots(self, vector: Tensor, name: str = "update") -> Tensor:
        """Return the dot product of each row with a vector of the same dtype, in float64."""
        return (self._matrices[name] @ vector).double()

    def blocks(self, name: str = "update") -> Iterator[tuple[slice, Tensor]]:
        """Yield all rows in blocks, which must not be changed, each with the slice of its positions."""
        matrix = self._matrices[name]
        for start in range(0, len(matrix), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            yield rows, matrix[rows]

    def _some(self, name: str, rows: Sequence[int] | None) -> Tensor:
        return self._matrices[name] if rows is None else self._matrices[name][rows]

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidInput(
            "uploads.vectors hands out no whole matrix; call uploads.average(name), or total, weighted_sum, geometry, "
            "gram_matrix, dots or blocks of uploads.vectors."
        )

    __getitem__ = get = items = values = _refuse
