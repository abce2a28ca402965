"""Uploads as the rows of a matrix, in memory or, where they are many and long, in a file."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import torch
from torch import Tensor

from fedtaco.errors import RunStopped

IN_MEMORY = 1 << 30
"""Bytes from which on a matrix lies in a temporary file; TMPDIR says in which folder."""


def matrix_for(rows: int, like: Tensor) -> Tensor:
    """Room for as many tensors like this one; what lies in a file is gone with the matrix."""
    shape, size = (rows, *like.shape), rows * like.nbytes
    if size < IN_MEMORY:
        return torch.empty(shape, dtype=like.dtype)
    with tempfile.TemporaryFile(prefix="fedtaco-uploads-") as file:
        try:
            _reserve(file.fileno(), size)
        except OSError as error:
            raise RunStopped(
                f"No room for {rows} uploads, {size / 1e9:.1f} GB, in {tempfile.gettempdir()}: {error.strerror}. "
                "Make room there, or name another folder in TMPDIR."
            ) from error
        numbers = np.memmap(file, dtype=np.uint8, mode="r+", shape=(size,))
    return torch.from_numpy(numbers).view(like.dtype).view(shape)


def _reserve(descriptor: int, size: int) -> None:
    """Room on the disk where the system can promise it, else a file of that size."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)
