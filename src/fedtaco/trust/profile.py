"""The profile of training: which coordinates of the model it changes much, and which little.

The signs of two uploads may have nothing in common although both clients train, for instance late in a run or with
small batches. But training changes much the same coordinates in all clients, while noise that knows nothing of the
model is spread evenly. So the sizes of an upload's coordinates are compared with those of uploads with content.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.trust.evidence import Evidence
from fedtaco.trust.sketch import coordinates_per_entry

DEVIATIONS = 4.0
"""Standard deviations by which the rank correlation of an upload must be larger than that of noise."""
HONEST = 0.12
"""Rank correlation that uploads of clients that train exceed, but for rare exceptions (docs/freeloaders.md)."""


@dataclass(frozen=True)
class Profile:
    """Ranks of the sizes of coordinates, over the entries in which an upload of the round is not zero."""

    evidence: Evidence
    entries: Tensor
    """Mask of these entries."""
    common: Tensor
    """Ranks of the mean sizes in the uploads with content, those of earlier rounds included."""

    @classmethod
    def of(cls, evidence: Evidence, with_content: list[int]) -> Profile:
        """Return the profile of a round, given the rows of its uploads with content."""
        entries = evidence.uploads.any(0)
        sizes = evidence.memory["last"].abs().sum(0) + _sizes(evidence, with_content).sum(0)
        return cls(evidence, entries, _ranks(_per_coordinate(evidence, sizes)[entries]))

    @property
    def by_chance(self) -> float:
        """The rank correlation that noise stays below.

        Noise ranks the entries in random order, so that its correlation with anything has mean zero and standard
        deviation 1/sqrt(entries - 1).
        """
        return DEVIATIONS / math.sqrt(max(len(self.common) - 1, 1))

    @property
    def can_tell(self) -> bool:
        """Whether there are enough entries, and uploads with content, to tell noise from uploads of honest clients."""
        return self.by_chance <= HONEST and bool(self.common.any())

    def correlation(self, row: int) -> float:
        """Return the rank correlation of the sizes in an upload with the common ones.

        If the correlation with the client's own last upload with content is larger, return that.
        """
        own = self.evidence.memory["last"][self.evidence.given.uploads.clients[row]].abs()
        sizes, own = (_per_coordinate(self.evidence, one) for one in (_sizes(self.evidence, [row])[0], own))
        return float((torch.stack([self.common, _ranks(own[self.entries])]) @ _ranks(sizes[self.entries])).max())


def _sizes(evidence: Evidence, rows: list[int]) -> Tensor:
    """Return the sizes of what is new in some uploads, zero where the uploads themselves are zero."""
    return evidence.new[rows].abs().where(evidence.uploads[rows] != 0, 0.0)


def _per_coordinate(evidence: Evidence, sizes: Tensor) -> Tensor:
    """Divide the sizes by what noise would have, since entries of a sketch are sums of unequally many coordinates."""
    return sizes / coordinates_per_entry(len(evidence.given.broadcast.start)).sqrt()


def _ranks(sizes: Tensor) -> Tensor:
    """Return the ranks as a unit vector with mean zero; equal sizes share their mean rank.

    >>> _ranks(torch.tensor([1.0, 1.0, 0.5, 0.5]))
    tensor([ 0.5000,  0.5000, -0.5000, -0.5000], dtype=torch.float64)
    """
    _, place, counts = sizes.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2).double()[place]
    return functional.normalize(ranks - ranks.mean(), dim=0)
