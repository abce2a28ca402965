"""SHA-256 of named tensors, by which data and models are recognised."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def digest_tensors(named: Iterable[tuple[str, Tensor]]) -> str:
    """Return the SHA-256 of names, shapes, types and values.

    >>> digest_tensors([("x", torch.ones(2))]) == digest_tensors([("x", torch.ones(2))])
    True
    >>> digest_tensors([("x", torch.ones(2))]) == digest_tensors([("x", torch.ones(1, 2))])
    False
    """
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
