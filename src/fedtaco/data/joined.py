"""The samples of several clients as one set."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtaco.data.partitions import Indices
from fedtaco.data.samples import Samples
from fedtaco.inputs import Batch, join_inputs


class JoinedSamples(Samples):
    """The samples of several clients, one client after another.

    Parameters
    ----------
    parts : sequence of Samples
        The samples of each client.
    chosen : Tensor, optional
        Indices of the samples that belong to this object; all by default.

    Examples
    --------
    >>> from fedtaco.data import as_samples
    >>> first, second = (as_samples((torch.full((n, 1), float(n)), torch.zeros(n))) for n in (2, 3))
    >>> joined = JoinedSamples([first, second])
    >>> joined.batch(torch.tensor([1, 2, 4]))[0].flatten()
    tensor([2., 3., 3.])
    >>> joined.subset([2, 3, 4]) is second
    True
    """

    def __init__(self, parts: Sequence[Samples], chosen: Tensor | None = None) -> None:
        super().__init__(chosen)
        self.parts, self.starts = parts, np.cumsum([0, *map(len, parts)])
        self.has_fixed_shape = all(part.has_fixed_shape for part in parts)

    def count(self) -> int:
        return int(self.starts[-1])

    def by_client(self) -> list[Indices]:
        """Return the indices of each client's samples."""
        return [np.arange(start, end) for start, end in pairwise(self.starts.tolist())]

    def subset(self, indices: Any) -> Samples:
        """Return some of the samples; if they are all of one client, as samples of the client's own kind."""
        chosen = self.rows(torch.as_tensor(indices))
        owners = self._owners(chosen)
        if len(owners) == 0 or (owners != owners[0]).any():
            return JoinedSamples(self.parts, chosen)
        client = int(owners[0])
        own, start = self.parts[client], int(self.starts[client])
        is_whole = torch.equal(chosen, torch.arange(start, start + len(own)))
        return own if is_whole else own.subset(chosen - start)

    def labels(self) -> Tensor | None:
        """Return the targets of all samples; ``None`` if some are not in memory, or they are of different kinds."""
        labels = [part.labels() for part in self.parts]
        known = [one for one in labels if one is not None]
        if len(known) < len(labels) or len({(one.shape[1:], one.dtype) for one in known}) > 1:
            return None
        joined = torch.cat(known)
        return joined if self.chosen is None else joined[self.chosen]

    def read(self, rows: Tensor) -> Batch:
        owners = self._owners(rows)
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        batches = [
            self.parts[owners[first]].batch(rows[first:end] - int(self.starts[owners[first]]))
            for first, end in pairwise(cuts)
        ]
        return join_inputs(torch.cat, [x for x, _ in batches]), torch.cat([y for _, y in batches])

    def _owners(self, chosen: Tensor) -> Indices:
        """Return the client that holds each of these samples."""
        return np.searchsorted(self.starts, chosen.numpy(), side="right") - 1
