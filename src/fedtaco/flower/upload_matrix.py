"""Matrices of uploads, in memory or, if they are large, in temporary files."""

import os
import tempfile

import numpy as np
import torch
from torch import Tensor

from fedtaco.errors import RunStopped

MAX_BYTES_IN_MEMORY = 1 << 30
"""Matrices of at least this many bytes are stored in a temporary file, in the folder that TMPDIR names."""


def allocate_matrix(rows: int, like: Tensor) -> Tensor:
    """Return an uninitialised matrix whose rows have the shape and type of ``like``.

    If it is stored in a file, the file is deleted together with the matrix.

    Raises
    ------
    RunStopped
        If there is not enough space for the file.
    """
    shape, size = (rows, *like.shape), rows * like.nbytes
    if size < MAX_BYTES_IN_MEMORY:
        return torch.empty(shape, dtype=like.dtype)
    with tempfile.TemporaryFile(prefix="fedtaco-uploads-") as file:
        try:
            _reserve(file.fileno(), size)
        except OSError as error:
            raise RunStopped(
                f"No room for {rows} uploads, {size / 1e9:.1f} GB, in {tempfile.gettempdir()}: {error.strerror}. "
                "Free some space there, or name another folder in TMPDIR."
            ) from error
        mapped = np.memmap(file, dtype=np.uint8, mode="r+", shape=(size,))
    return torch.from_numpy(mapped).view(like.dtype).view(shape)


def _reserve(descriptor: int, size: int) -> None:
    """Set the size of a file and, if the system supports it, reserve its space on the disk."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)
