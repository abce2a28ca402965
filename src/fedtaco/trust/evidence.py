"""What is new in an upload: what is left of it outside the span of all that its client was sent.

Beside the moves of the model that span holds the vectors of the broadcast, and so the correction that
TACO or FedCM added, whatever its factor, and the server's part of Scaffold's. All vectors are
sketches, so that nothing that is kept grows with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.methods import Memory
from fedtaco.trust.detector import Case
from fedtaco.trust.sketch import sketch, sketch_size

MOVES, ROOM = 20, 50
"""How many of the last moves that a client has seen may be mixed in what is not new, if a sketch has room for them:
so many numbers for each."""
ROUNDS_KEPT = 100
"""How many starting points are remembered."""
ZERO = 1e-6
"""An upload counts as zero below this part of the median length of those that are not."""
INDEPENDENT = 1e-5
"""Directions in which known vectors differ by less than this part of their lengths are rounding."""
TINY = torch.finfo(torch.float32).tiny


def moves_known(size: int) -> int:
    return max(1, min(MOVES, size // ROOM))


def nothing_sent(clients: int, length: int) -> Memory:
    """What is remembered before the first round."""
    size = sketch_size(length)
    return {
        "starts": torch.zeros(0, size, dtype=torch.float64),
        "rounds": torch.zeros(0, dtype=torch.int64),
        "sent": torch.zeros(clients, moves_known(size), dtype=torch.int64),
        "last": torch.zeros(clients, size),
    }


@dataclass(frozen=True)
class Evidence:
    """The uploads of a round, a row each, and what the server remembers of earlier rounds."""

    case: Case
    memory: Memory
    new: Tensor
    """Unit vectors of what is new."""
    new_share: Tensor
    """The part of the squared length that is new."""
    lengths: Tensor

    @classmethod
    def of(cls, memory: Memory, case: Case) -> Evidence:
        memory = {
            **memory,
            "starts": torch.cat([memory["starts"], sketch(case.sent.start.double()[None])]),
            "rounds": torch.cat([memory["rounds"], torch.tensor([case.round])]),
        }
        uploads = sketch(case.uploads.vectors["update"])
        vectors = [sketch(vector[None]).double() for vector in case.sent.vectors.values()]
        pasts, which = memory["sent"][case.uploads.clients].unique(dim=0, return_inverse=True)
        known = [torch.cat([_moves(memory, rounds), *vectors]) for rounds in pasts]
        if len(known) == 1:
            new = _off_span(uploads, known[0])
        else:
            new = torch.empty_like(uploads)
            for past, basis in enumerate(known):
                new[which == past] = _off_span(uploads[which == past], basis)
        whole, left = (torch.linalg.vector_norm(rows, dim=1) for rows in (uploads, new))
        return cls(
            case=case,
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
        """Which uploads are, while others are not."""
        return self.lengths < ZERO * self.lengths[self.lengths > 0].median()

    def earlier(self, rows: list[int], most: int) -> Tensor:
        """Earlier uploads that were found to have content, those of the clients of these rows first."""
        own, is_told = self.case.uploads.clients[rows], self.is_told
        others = is_told.index_fill(0, own, False).nonzero().flatten()
        chosen = torch.cat([own[is_told[own]], others])[:most]
        return self.memory["last"][chosen].to(self.new.dtype)

    @cached_property
    def is_told(self) -> Tensor:
        """Which clients' earlier uploads were found to have content, and can be compared with."""
        return self.memory["last"].any(1)

    def remembered(self, told: Tensor) -> Memory:
        """What is kept for the next round; of the uploads only those that are ``told``, in which content was found."""
        clients, sent, last = self.case.uploads.clients, self.memory["sent"].clone(), self.memory["last"].clone()
        now = torch.full((len(self.case.asked), 1), self.case.round)
        sent[self.case.asked] = torch.cat([now, sent[self.case.asked]], dim=1)[:, : sent.shape[1]]
        last[clients[told]] = self.new[told].float()
        needed = torch.nonzero(torch.isin(self.memory["rounds"], sent)).flatten()[-ROUNDS_KEPT:]
        points = {name: self.memory[name][needed] for name in ("starts", "rounds")}
        return {**self.memory, **points, "sent": sent, "last": last}


def _moves(memory: Memory, rounds: Tensor) -> Tensor:
    """The moves between the starting points that a client was sent, as far as they are remembered."""
    known = torch.isin(memory["rounds"], rounds)
    known[-1] = True
    return memory["starts"][known].diff(dim=0)


def _off_span(rows: Tensor, basis: Tensor) -> Tensor:
    """What is left of each row outside the span of the basis, whose vectors may depend on each other."""
    unit = functional.normalize(basis, eps=TINY, out=basis)
    squares, mixtures = torch.linalg.eigh(unit @ unit.T)
    real = squares > INDEPENDENT**2 * squares[-1:]
    axes = ((mixtures[:, real] / squares[real].sqrt()).T @ unit).to(rows.dtype)
    return torch.addmm(rows, rows @ axes.T, axes, alpha=-1)
