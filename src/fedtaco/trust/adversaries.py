"""Which simulated clients misbehave, and what they remember of earlier rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods import NamedTensors
from fedtaco.randomness import generator
from fedtaco.trust.behaviours import Behaviour, ClientView, Freeloader


@dataclass(frozen=True)
class AdversarialClients:
    """Simulated clients that misbehave, all with the same behaviour."""

    clients: frozenset[int]
    behaviour: Behaviour
    seed: int

    @property
    def never_training(self) -> frozenset[int]:
        """The clients that train in no round, so that their samples are never used."""
        return frozenset() if self.behaviour.ever_trains else self.clients

    def forge(self, client: int, round_number: int, start: Tensor, memory: NamedTensors) -> Tensor:
        """Return the update that a freeloader sends."""
        assert isinstance(self.behaviour, Freeloader)
        return self.behaviour.forge(self._view(client, round_number, start, memory))

    def change_update(
        self, client: int, round_number: int, start: Tensor, memory: NamedTensors, update: Tensor
    ) -> Tensor:
        """Return what a client that has trained sends instead of ``update``."""
        return self.behaviour.change_update(update, self._view(client, round_number, start, memory))

    def remember(self, start: Tensor, memory: NamedTensors) -> NamedTensors:
        """Return a client's memory after it received the starting point ``start``."""
        first_move = memory.get("first_move", torch.zeros(1))
        if "start" in memory and first_move == 0:
            first_move = (start - memory["start"]).abs().mean().reshape(1)
        return {"start": start, "first_move": first_move}

    def _view(self, client: int, round_number: int, start: Tensor, memory: NamedTensors) -> ClientView:
        return ClientView(
            start=start,
            previous=memory.get("start"),
            first_move=float(self.remember(start, memory)["first_move"]),
            round=round_number,
            rng=generator(self.seed, "behaviour", client, round_number),
        )


NO_ADVERSARIES = AdversarialClients(frozenset(), Behaviour(), seed=0)
"""All clients are honest."""


def choose_clients(count: int, groups: Sequence[str], seed: int) -> list[int]:
    """Choose clients at random, from each group in proportion to its size.

    The clients are shuffled and sorted by group; from a random offset on, every (N / count)-th is chosen.

    Parameters
    ----------
    count
        Number of clients to choose.
    groups
        The group of each client.
    seed
        Seed of the choice.

    Returns
    -------
    list of int
        The chosen clients, in ascending order.

    Examples
    --------
    >>> chosen = choose_clients(8, ["A"] * 7 + ["B"] * 7 + ["C"] * 6, seed=0)
    >>> len([client for client in chosen if client < 7]) in (2, 3)
    True
    """
    rng = generator(seed, "freeloaders")
    shuffled = rng.permutation(len(groups))
    group_order = rng.permutation(sorted(set(groups))).tolist()
    ordered = sorted(shuffled.tolist(), key=lambda client: group_order.index(groups[client]))
    offset = rng.random()
    return sorted(ordered[int((place + offset) * len(ordered) / count)] for place in range(count))
