"""Which client held which training samples."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

Integers = npt.NDArray[np.int64]
MAX_BYTES = 8 * 10**8
"""Maximum size of an array in a file; that is one entry for each of 10⁸ samples."""
ARRAYS = {"indices": ("i", 1), "sizes": ("i", 1), "label_counts": ("i", 2), "groups": ("U", 1), "freeloaders": ("i", 1)}
"""Kind of numpy type and number of dimensions of each array in a file."""


@dataclass(frozen=True, eq=False)
class PartitionRecord:
    """The partition of a run, as its folder stores it."""

    indices: Sequence[Integers]
    """Indices of each client's training samples."""
    label_counts: Integers
    """Number of samples of each label, one row per client."""
    groups: list[str] | None = None
    """Group of each client, where the partition has groups."""
    freeloaders: list[int] = field(default_factory=list)
    """The clients that misbehave."""

    @classmethod
    def unknown(cls, clients: int) -> PartitionRecord:
        """Return a record without samples, for clients whose data the server does not know."""
        nothing = np.empty(0, dtype=np.int64)
        return cls([nothing] * clients, np.empty((clients, 0), dtype=np.int64))

    @property
    def kinds(self) -> list[str]:
        """What each client is: ``freeloaders``, or its group (``all`` if there are no groups)."""
        own = self.groups or ["all"] * len(self.label_counts)
        return ["freeloaders" if client in self.freeloaders else group for client, group in enumerate(own)]

    def equals(self, other: PartitionRecord) -> bool:
        """Return whether two partitions are the same."""
        mine, theirs = self._arrays(), other._arrays()
        return all(np.array_equal(mine[name], theirs[name]) for name in ARRAYS)

    def save(self, path: Path) -> None:
        """Write the record as an ``npz`` file."""
        with path.open("wb") as file:
            np.savez_compressed(file, **self._arrays())  # type: ignore[arg-type]  # its keyword-only flag has no array

    @classmethod
    def load(cls, path: Path) -> PartitionRecord:
        """Read a record; raise an error, such as ValueError, if the file contains something else."""
        _check_declared_arrays(path)
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in ARRAYS}
        parts = np.split(arrays["indices"], np.cumsum(arrays["sizes"])[:-1])
        groups, freeloaders = arrays["groups"].tolist(), arrays["freeloaders"].tolist()
        return cls(parts, arrays["label_counts"], groups or None, freeloaders)

    def _arrays(self) -> dict[str, npt.NDArray[np.int64] | npt.NDArray[np.str_]]:
        return {
            "indices": np.concatenate(self.indices),
            "sizes": np.array([len(part) for part in self.indices], dtype=np.int64),
            "label_counts": self.label_counts,
            "groups": np.array(self.groups or [], dtype=str),
            "freeloaders": np.array(self.freeloaders, dtype=np.int64),
        }


def _check_declared_arrays(path: Path) -> None:
    """Raise ValueError unless a file declares the expected arrays, none of them too large; nothing else is read."""
    with zipfile.ZipFile(path) as archive:
        if sorted(archive.namelist()) != sorted(f"{name}.npy" for name in ARRAYS):
            raise ValueError("it does not contain the arrays of a partition")
        for name, expected in ARRAYS.items():
            with archive.open(f"{name}.npy") as member:
                if npy.read_magic(member) != (1, 0):
                    raise ValueError(f"{name} has an unknown format")
                shape, _, dtype = npy.read_array_header_1_0(member)
            if (dtype.kind, len(shape)) != expected:
                raise ValueError(f"{name} has the type {dtype} and the shape {shape}")
            if math.prod(shape) * dtype.itemsize > MAX_BYTES:
                raise ValueError(f"{name} is too large")
