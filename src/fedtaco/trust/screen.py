"""The door: an upload that is not a number costs that upload, never the run."""

from __future__ import annotations

import torch
from torch import Tensor

from fedtaco.methods import Memory


def finite_rows(vectors: Memory) -> Tensor:
    """Which clients' uploads have a finite norm in every tensor; one so long that its norm overflows has none.

    >>> finite_rows({"update": torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])})
    tensor([ True, False])
    """
    norms = [torch.linalg.vector_norm(tensor.flatten(1), dim=1) for tensor in vectors.values()]
    return torch.stack([torch.isfinite(norm) for norm in norms]).all(0)
