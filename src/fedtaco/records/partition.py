"""Which client held which training samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartitionRecord:
    """The partition of a run as its folder keeps it."""

    indices: Sequence[Integers]
    """Training samples of each client."""
    label_counts: Integers
    """Number of samples of each label, one row per client."""
    groups: list[str] | None = None
    """Group of each client, where the partition has groups."""
    freeloaders: list[int] = field(default_factory=list)
    """The clients that misbehave."""

    @classmethod
    def unknown(cls, clients: int) -> PartitionRecord:
        """Return a record without samples, as for nodes whose data the server does not know."""
        nothing = np.empty(0, dtype=np.int64)
        return cls([nothing] * clients, np.empty((clients, 0), dtype=np.int64))

    @property
    def kinds(self) -> list[str]:
        """What each client is: ``freeloaders``, or its group (``all`` if there are no groups)."""
        own = self.groups or ["all"] * len(self.label_counts)
        return ["freeloaders" if client in self.freeloaders else group for client, group in enumerate(own)]
