"""What is new in an upload: the part outside the span of everything its client was sent.

Besides the moves of the model, that span contains the vectors of the broadcast, and therefore the
correction that TACO or FedCM added, whatever its factor, and the server's part of Scaffold's. All
vectors are sketches, so that memory does not grow with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.methods import NamedTensors
from fedtaco.trust.base import DetectorInput
from fedtaco.trust.sketch import sketch, sketch_size

MAX_MOVES, NUMBERS_PER_MOVE = 20, 50
"""Number of past moves that are removed from an upload, at most, and numbers of a sketch that each requires."""
ROUNDS_KEPT = 100
"""Number of starting points that are remembered."""
ZERO = 1e-6
"""An upload counts as zero below this fraction of the median length of non-zero uploads."""
INDEPENDENT = 1e-5
"""Relative size below which a direction in the span of known vectors is rounding error."""
TINY = torch.finfo(torch.float32).tiny


def initial_evidence(clients: int, length: int) -> NamedTensors:
    """Return the memory before the first round."""
    size = sketch_size(length)
    return {
        "starts": torch.zeros(0, size, dtype=torch.float64),
        "rounds": torch.zeros(0, dtype=torch.int64),
        "sent": torch.zeros(clients, max(1, min(MAX_MOVES, size // NUMBERS_PER_MOVE)), dtype=torch.int64),
        "last": torch.zeros(clients, size),
    }


@dataclass(frozen=True)
class Evidence:
    """Sketches of the uploads of a round, one row each, and what the server remembers of earlier rounds."""

    given: DetectorInput
    memory: NamedTensors
    new: Tensor
    """What is new in each upload, as unit vectors."""
    new_share: Tensor
    """Fraction of the squared length that is new."""
    lengths: Tensor

    @classmethod
    def of(cls, memory: NamedTensors, given: DetectorInput) -> Evidence:
        """Separate what is new in the uploads from what their clients received."""
        memory = {
            **memory,
            "starts": torch.cat([memory["starts"], sketch(given.broadcast.start.double()[None])]),
            "rounds": torch.cat([memory["rounds"], torch.tensor([given.round])]),
        }
        uploads = sketch(given.uploads.vectors["update"])
        vectors = [sketch(vector[None]).double() for vector in given.broadcast.vectors.values()]
        pasts, which = memory["sent"][given.uploads.clients].unique(dim=0, return_inverse=True)
        known = [torch.cat([_moves(memory, rounds), *vectors]) for rounds in pasts]
        if len(known) == 1:
            new = _off_span(uploads, known[0])
        else:
            new = torch.empty_like(uploads)
            for past, basis in enumerate(known):
                new[which == past] = _off_span(uploads[which == past], basis)
        whole, left = (torch.linalg.vector_norm(rows, dim=1) for rows in (uploads, new))
        return cls(
            given=given,
            memory=memory,
            new=new.div_(left.clamp(min=TINY)[:, None]),
            new_share=(left.double() / whole.double().clamp(min=TINY)).square(),
            lengths=whole,
        )

    @property
    def size(self) -> int:
        return self.new.shape[1]

    @property
    def is_zero(self) -> Tensor:
        """Mask of the uploads that are zero while others are not."""
        return self.lengths < ZERO * self.lengths[self.lengths > 0].median()

    def earlier(self, rows: list[int], most: int) -> Tensor:
        """Return earlier uploads with content, those of the clients in ``rows`` first."""
        own, has_content = self.given.uploads.clients[rows], self.has_content
        others = has_content.index_fill(0, own, False).nonzero().flatten()
        chosen = torch.cat([own[has_content[own]], others])[:most]
        return self.memory["last"][chosen].to(self.new.dtype)

    @cached_property
    def has_content(self) -> Tensor:
        """Mask of the clients with an earlier upload in which content was found."""
        return self.memory["last"].any(1)

    def updated_memory(self, with_content: Tensor) -> NamedTensors:
        """Return the memory for the next round; of the uploads, only those in the mask are kept."""
        clients, sent, last = self.given.uploads.clients, self.memory["sent"].clone(), self.memory["last"].clone()
        now = torch.full((len(self.given.cohort), 1), self.given.round)
        sent[self.given.cohort] = torch.cat([now, sent[self.given.cohort]], dim=1)[:, : sent.shape[1]]
        last[clients[with_content]] = self.new[with_content].float()
        needed = torch.nonzero(torch.isin(self.memory["rounds"], sent)).flatten()[-ROUNDS_KEPT:]
        points = {name: self.memory[name][needed] for name in ("starts", "rounds")}
        return {**self.memory, **points, "sent": sent, "last": last}


def _moves(memory: NamedTensors, rounds: Tensor) -> Tensor:
    """Return the moves between the starting points of ``rounds``, as far as they are remembered."""
    known = torch.isin(memory["rounds"], rounds)
    known[-1] = True
    return memory["starts"][known].diff(dim=0)


def _off_span(rows: Tensor, basis: Tensor) -> Tensor:
    """Remove from each row its projection on the span of ``basis``, whose vectors may be dependent."""
    unit = functional.normalize(basis, eps=TINY, out=basis)
    squares, mixtures = torch.linalg.eigh(unit @ unit.T)
    real = squares > INDEPENDENT**2 * squares[-1:]
    axes = ((mixtures[:, real] / squares[real].sqrt()).T @ unit).to(rows.dtype)
    return torch.addmm(rows, rows @ axes.T, axes, alpha=-1)
