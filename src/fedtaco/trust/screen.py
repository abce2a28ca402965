"""The door: an upload that is not a number costs that upload, never the run."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtaco.methods import Memory


def finite_rows(vectors: Memory) -> Tensor:
    """Which clients' uploads are finite in every tensor: their sum tells, or each number where a sum overflows.

    >>> finite_rows({"update": torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])})
    tensor([ True, False])
    """
    finite = torch.stack([torch.isfinite(tensor.flatten(1).sum(1)) for tensor in vectors.values()]).all(0)
    for row in torch.nonzero(~finite).flatten().tolist():
        finite[row] = all(bool(torch.isfinite(tensor[row]).all()) for tensor in vectors.values())
    return finite
