"""Screening of uploads: one that is not finite is dropped and never stops the run."""

import torch
from torch import Tensor

from fedtaco.methods import NamedTensors


def finite_rows(vectors: NamedTensors) -> Tensor:
    """Return a mask of the clients whose uploads have a finite norm in every tensor; an overflowing norm is not finite.

    >>> finite_rows({"update": torch.tensor([[1.0, 2.0], [float("nan"), 0.0]])})
    tensor([ True, False])
    """
    norms = [torch.linalg.vector_norm(tensor.flatten(1), dim=1) for tensor in vectors.values()]
    return torch.stack([torch.isfinite(norm) for norm in norms]).all(0)
