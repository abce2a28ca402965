"""Uploads made by hand, to test what servers do with them."""

from __future__ import annotations

import torch

from fedtaco.methods import Constants, Uploads
from fedtaco.uploads import UploadedVectors


def make_uploads(matrix, shares=None, steps=None):
    """Return uploads whose updates are the rows of ``matrix``, of five steps each unless ``steps`` says otherwise."""
    count = len(matrix)
    shares = torch.full((count,), 1 / count, dtype=torch.float64) if shares is None else shares
    return Uploads(
        constants=Constants(clients=count, rounds=10, local_steps=5, local_lr=0.1),
        clients=torch.arange(count),
        vectors=UploadedVectors({"update": matrix}),
        steps=torch.full((count,), 5) if steps is None else torch.tensor(steps),
        shares=shares,
        aggregation_weights=shares,
    )
