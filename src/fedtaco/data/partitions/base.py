"""What a partition is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """The samples of each client, the group it belongs to where there are groups, and what had to be said."""

    indices: list[Indices]
    groups: list[str] | None = None
    notes: list[str] = field(default_factory=list)
