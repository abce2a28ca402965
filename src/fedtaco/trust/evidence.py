"""What is new in an upload: the part outside the span of everything its client has received.

The span contains the moves of the model, that is, the differences between successive starting points that the
client received, and the vectors of the broadcast. It thus contains the correction that TACO or FedCM added,
whatever its factor, and the server's part of Scaffold's correction. With weight decay it also contains the starting
point itself, along which every upload decays. All vectors are sketches, so that memory does not grow with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.methods import NamedTensors
from fedtaco.trust.detector import DetectorInput
from fedtaco.trust.sketch import sketch, sketch_size

MAX_MOVES, NUMBERS_PER_MOVE = 20, 50
"""Maximum number of past moves that are removed from an upload, and the sketch size that each of them requires."""
ROUNDS_KEPT = 100
"""Maximum number of starting points that are remembered."""
ZERO = 1e-6
"""An upload counts as zero if its norm is below this fraction of the median norm of non-zero uploads."""
SHORT = 1e-3
"""An upload counts as short if its norm is below this fraction of the same median."""
ZERO_LOSS = 1e-3
"""A stated loss counts as near zero if it is below this fraction of the largest one of the round."""
INDEPENDENT = 1e-5
"""Relative size below which a direction in the span of received vectors is treated as rounding error."""
TINY = torch.finfo(torch.float32).tiny


def initial_evidence(clients: int, length: int) -> NamedTensors:
    """Return the memory before the first round.

    ``starts`` and ``rounds`` are sketches of starting points and the rounds they belong to. ``sent`` has one row per
    client: the last rounds in which the client received a starting point. ``last`` has one row per client: what was new
    in its last upload with content. ``trained`` marks the clients that have trained in some round.
    """
    size = sketch_size(length)
    return {
        "starts": torch.zeros(0, size, dtype=torch.float64),
        "rounds": torch.zeros(0, dtype=torch.int64),
        "sent": torch.zeros(clients, max(1, min(MAX_MOVES, size // NUMBERS_PER_MOVE)), dtype=torch.int64),
        "last": torch.zeros(clients, size),
        "trained": torch.zeros(clients, dtype=torch.bool),
    }


@dataclass(frozen=True)
class Evidence:
    """Sketches of the uploads of a round, one row each, and what the server remembers of earlier rounds."""

    given: DetectorInput
    memory: NamedTensors
    uploads: Tensor
    """Sketches of the uploads."""
    new: Tensor
    """What is new in each upload, as unit vectors."""
    new_share: Tensor
    """Fraction of each upload's squared norm that is new."""
    norms: Tensor
    """Norm of each upload."""

    @classmethod
    def of(cls, memory: NamedTensors, given: DetectorInput) -> Evidence:
        """Return the evidence of a round; ``memory`` is that of earlier rounds."""
        memory = {
            **memory,
            "starts": torch.cat([memory["starts"], sketch(given.broadcast.start.double()[None])]),
            "rounds": torch.cat([memory["rounds"], torch.tensor([given.round])]),
        }
        uploads = torch.cat([sketch(block) for _, block in given.uploads.vectors.blocks()])
        vectors = [sketch(vector[None]).double() for vector in given.broadcast.vectors.values()]
        if given.uploads.constants.optimizer.weight_decay:
            vectors.append(memory["starts"][-1:])
        histories, history_of = memory["sent"][given.uploads.clients].unique(dim=0, return_inverse=True)
        received = [torch.cat([_moves(memory, rounds), *vectors]) for rounds in histories]
        if len(received) == 1:
            new = _remove_span(uploads, received[0])
        else:
            new = torch.empty_like(uploads)
            for history, basis in enumerate(received):
                new[history_of == history] = _remove_span(uploads[history_of == history], basis)
        norms, new_norms = (torch.linalg.vector_norm(rows, dim=1) for rows in (uploads, new))
        return cls(
            given=given,
            memory=memory,
            uploads=uploads,
            new=new.div_(new_norms.clamp(min=TINY)[:, None]),
            new_share=(new_norms.double() / norms.double().clamp(min=TINY)).square(),
            norms=norms,
        )

    @property
    def size(self) -> int:
        """Number of entries of a sketch."""
        return self.new.shape[1]

    @property
    def is_zero(self) -> Tensor:
        """Mask of the uploads that are zero or nearly zero compared with the others."""
        return self.norms < ZERO * self._median_norm

    @property
    def is_short(self) -> Tensor:
        """Mask of the uploads that are so short that rounding errors may be a large part of them."""
        return self.norms < SHORT * self._median_norm

    @property
    def _median_norm(self) -> Tensor:
        return self.norms[self.norms > 0].median()

    @property
    def has_trained(self) -> Tensor:
        """Mask of the uploads whose clients have trained in an earlier round."""
        return self.memory["trained"][self.given.uploads.clients]

    @property
    def is_fitted(self) -> Tensor:
        """Mask of the uploads whose clients may have nothing to learn: they have trained, and state a loss near zero.

        A client that claims this wrongly is not expelled, but what it sends without training is dropped all the same.
        """
        losses = self.given.uploads.training_losses
        if not len(losses):
            return torch.zeros_like(self.has_trained)
        return self.has_trained & (losses < ZERO_LOSS * losses.nan_to_num(nan=0.0).max())

    def earlier(self, rows: list[int], most: int) -> Tensor:
        """Return at most ``most`` earlier uploads with content, those of the clients in ``rows`` first."""
        own, has_content = self.given.uploads.clients[rows], self.has_content
        others = has_content.index_fill(0, own, False).nonzero().flatten()
        chosen = torch.cat([own[has_content[own]], others])[:most]
        return self.memory["last"][chosen].to(self.new.dtype)

    @cached_property
    def has_content(self) -> Tensor:
        """Mask of the clients with an earlier upload in which content was found."""
        return self.memory["last"].any(1)

    def trained_after(self, with_content: list[int]) -> Tensor:
        """Return a mask of all clients that have trained so far, given the rows in which content was found.

        Content shows that a client trains. If uploads are compressed, copies have content as well, so that only a
        client's first upload shows it, before there was anything to copy.
        """
        trained, clients = self.memory["trained"].clone(), self.given.uploads.clients[with_content]
        if not self.given.codec.is_lossless:
            clients = clients[self.memory["seen"][clients] == 0]
        trained[clients] = True
        return trained

    def updated_memory(self, with_content: list[int]) -> NamedTensors:
        """Return the memory for the next round; ``with_content`` are the rows of the uploads to remember."""
        clients, sent, last = self.given.uploads.clients, self.memory["sent"].clone(), self.memory["last"].clone()
        now = torch.full((len(self.given.cohort), 1), self.given.round)
        sent[self.given.cohort] = torch.cat([now, sent[self.given.cohort]], dim=1)[:, : sent.shape[1]]
        last[clients[with_content]] = self.new[with_content].float()
        needed = torch.nonzero(torch.isin(self.memory["rounds"], sent)).flatten()[-ROUNDS_KEPT:]
        points = {name: self.memory[name][needed] for name in ("starts", "rounds")}
        return {**self.memory, **points, "sent": sent, "last": last, "trained": self.trained_after(with_content)}


def _moves(memory: NamedTensors, rounds: Tensor) -> Tensor:
    """Return the moves between the remembered starting points of ``rounds`` and the current one."""
    received = torch.isin(memory["rounds"], rounds)
    received[-1] = True
    return memory["starts"][received].diff(dim=0)


def _remove_span(rows: Tensor, basis: Tensor) -> Tensor:
    """Return the rows without their projections on the span of ``basis``, whose vectors may be linearly dependent."""
    unit = functional.normalize(basis, eps=TINY, out=basis)
    squares, mixtures = torch.linalg.eigh(unit @ unit.T)
    real = squares > INDEPENDENT**2 * squares[-1:]
    axes = ((mixtures[:, real] / squares[real].sqrt()).T @ unit).to(rows.dtype)
    return torch.addmm(rows, rows @ axes.T, axes, alpha=-1)
