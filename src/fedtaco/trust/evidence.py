"""What is new in an upload: what is left of it outside the span of all that its client was sent.

Beside the moves of the model that span holds the vectors of the broadcast, and so the correction that
TACO or FedCM added, whatever its factor, and the server's part of Scaffold's. All vectors are
sketches, so that nothing that is kept grows with the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods import Memory
from fedtaco.trust.detector import Case
from fedtaco.trust.sketch import sketch, sketch_size

MOVES = 3
"""How many of the last moves that a client has seen may be mixed in what is not new."""
ROUNDS_KEPT = 100
"""How many starting points are remembered."""
ZERO = 1e-6
"""An upload counts as zero below this part of the median length of those that are not."""
INDEPENDENT = 1e-6
"""Vectors span no more dimensions than they have singular values above this part of the largest."""
TINY = torch.finfo(torch.float32).tiny


def nothing_sent(clients: int, length: int) -> Memory:
    """What is remembered before the first round."""
    size = sketch_size(length)
    return {
        "starts": torch.zeros(0, size, dtype=torch.float64),
        "rounds": torch.zeros(0, dtype=torch.int64),
        "sent": torch.zeros(clients, MOVES, dtype=torch.int64),
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
            "starts": torch.cat([memory["starts"], sketch(case.sent.start.double()[None])])[-ROUNDS_KEPT:],
            "rounds": torch.cat([memory["rounds"], torch.tensor([case.round])])[-ROUNDS_KEPT:],
        }
        uploads = sketch(case.uploads.vectors["update"])
        vectors = [sketch(vector[None]).double() for vector in case.sent.vectors.values()]
        new, seen = torch.empty_like(uploads), memory["sent"][case.uploads.clients]
        for rounds in seen.unique(dim=0):
            rows = (seen == rounds).all(1)
            new[rows] = _off_span(uploads[rows], torch.cat([_moves(memory, rounds), *vectors]))
        whole, left = (torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in (uploads, new))
        return cls(
            case=case,
            memory=memory,
            new=new.div_(left.clamp(min=TINY).to(new.dtype)[:, None]),
            new_share=(left / whole.clamp(min=TINY)).square(),
            lengths=whole,
        )

    @property
    def is_zero(self) -> Tensor:
        """Which uploads are, while others are not."""
        return self.lengths < ZERO * self.lengths[self.lengths > 0].median()

    @property
    def agreement_with_last(self) -> Tensor:
        """Squared cosine of what is new with what was new in the client's last upload that was used."""
        return (self.new * self.memory["last"][self.case.uploads.clients]).sum(1).double().square()

    def remembered(self, used: Tensor) -> Memory:
        """What is kept for the next round; an upload that is not ``used`` is nothing to agree with later."""
        clients, sent, last = self.case.uploads.clients, self.memory["sent"].clone(), self.memory["last"].clone()
        now = torch.full((len(clients), 1), self.case.round)
        sent[clients] = torch.cat([now, sent[clients, :-1]], dim=1)
        last[clients[used]] = self.new[used].float()
        return {**self.memory, "sent": sent, "last": last}


def _moves(memory: Memory, rounds: Tensor) -> Tensor:
    """The moves between the starting points that a client was sent, as far as they are remembered."""
    known = [memory["starts"][memory["rounds"] == number] for number in rounds.tolist()]
    points = torch.cat([memory["starts"][-1:], *known])
    return points[1:] - points[:-1]


def _off_span(rows: Tensor, basis: Tensor) -> Tensor:
    """What is left of each row outside the span of the basis, whose vectors may depend on each other."""
    lengths = torch.linalg.vector_norm(basis, dim=1)
    unit = basis[lengths > 0] / lengths[lengths > 0, None]
    if len(unit) == 0:
        return rows
    _, strengths, directions = torch.linalg.svd(unit, full_matrices=False)
    axes: Tensor = directions[strengths > INDEPENDENT * strengths[0]].to(rows.dtype)
    return rows - (rows @ axes.T) @ axes
