"""Rounds with uploads written by hand, for tests of the guard."""

from __future__ import annotations

import torch

from fedtaco.codecs import NO_CODEC
from fedtaco.methods import Broadcast, Constants, Uploads
from fedtaco.trust import DetectorInput, Guard
from fedtaco.uploads import UploadedVectors

D = 3000
"""Number of parameters of the model."""


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trained(count, seed):
    """Return uploads that have something in common, as those of clients that train do."""
    return noise(D, seed=seed) + 0.5 * noise(count, D, seed=seed + 1)


class GuardRounds:
    """A guard that judges one round after another.

    ``clients`` of a round are the clients whose uploads are the rows of ``matrix``; the first ones by default.
    """

    def __init__(self, guard=None, clients=6, codec=NO_CODEC):
        self.guard, self.codec = guard or Guard(), codec
        self.constants = Constants(clients=clients, rounds=50, local_steps=1, local_lr=0.1)
        self.memory = self.guard.initial_memory(torch.zeros(D), self.constants)
        self.expelled = torch.zeros(clients, dtype=torch.bool)
        self.round = 0

    def make_input(self, start, matrix, clients=None, vectors=None, losses=()):
        count = len(matrix)
        uploads = Uploads(
            constants=self.constants,
            clients=torch.arange(count) if clients is None else torch.tensor(clients),
            vectors=UploadedVectors({"update": matrix}),
            steps=torch.ones(count, dtype=torch.int64),
            shares=torch.full((count,), 1 / count),
            training_losses=torch.tensor(losses, dtype=torch.float64),
        )
        return DetectorInput(
            Broadcast(start, vectors=vectors or {}),
            uploads.clients,
            uploads,
            self.round,
            partial_participation=clients is not None,
            expelled=self.expelled.clone(),
            codec=self.codec,
        )

    def judge(self, start, matrix, clients=None, vectors=None, losses=()):
        """Return the verdict on the next round, in which clients start from ``start``."""
        self.round += 1
        verdict = self.guard.judge(self.memory, self.make_input(start, matrix, clients, vectors, losses))
        self.memory = verdict.memory
        self.expelled[list(verdict.expelled)] = True
        return verdict


def failed_tests(verdict):
    """Return the test that each suspicious client failed."""
    return {decision.client: decision.test for decision in verdict.decisions}
