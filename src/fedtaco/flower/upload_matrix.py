"""Matrices of uploads, in memory or, if they are large, in a temporary file."""

import os
import tempfile

import numpy as np
import torch
from torch import Tensor

from fedtaco.errors import RunStopped

IN_MEMORY = 1 << 30
"""Bytes from which a matrix lies in a temporary file, in the folder that TMPDIR names."""


def allocate_matrix(rows: int, like: Tensor) -> Tensor:
    """Return a matrix with rows like this tensor; a file behind it is deleted with the matrix."""
    shape, size = (rows, *like.shape), rows * like.nbytes
    if size < IN_MEMORY:
        return torch.empty(shape, dtype=like.dtype)
    with tempfile.TemporaryFile(prefix="fedtaco-uploads-") as file:
        try:
            _reserve(file.fileno(), size)
        except OSError as error:
            raise RunStopped(
                f"No room for {rows} uploads, {size / 1e9:.1f} GB, in {tempfile.gettempdir()}: {error.strerror}. "
                "Free some space there, or name another folder in TMPDIR."
            ) from error
        numbers = np.memmap(file, dtype=np.uint8, mode="r+", shape=(size,))
    return torch.from_numpy(numbers).view(like.dtype).view(shape)


def _reserve(descriptor: int, size: int) -> None:
    """Reserve space on the disk if the system can, or else create a file of that size."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)
