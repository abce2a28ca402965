"""The door: an upload that is not a number costs that upload, never the run."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtaco.methods import Memory


def finite_rows(vectors: Memory) -> Tensor:
    """Which clients' uploads are finite in every tensor.

    >>> finite_rows({"update": torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])})
    tensor([ True, False])
    """
    rows = [[bool(torch.isfinite(row).all()) for row in tensor] for tensor in vectors.values()]
    return torch.tensor(rows).all(0)
