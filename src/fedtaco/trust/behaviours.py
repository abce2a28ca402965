"""What clients do that do not do their work: freeloaders, and the usual attackers for contrast.

A freeloader never trains. It makes up an upload from what it was sent and from its own memory of
earlier rounds, which is all that a real client would have. An attacker trains, and spoils what it
learnt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedtaco.errors import InvalidInput, unknown
from fedtaco.methods import Memory
from fedtaco.randomness import generator

FIRST_RANDOM = 1e-3
"""How long the numbers of ``random`` are in a round before which nothing was seen to move."""


@dataclass(frozen=True)
class Sight:
    """What a client has before it as it makes up an upload."""

    start: Tensor
    """Where the server asks it to start from."""
    previous: Tensor | None
    """Where it was asked to start the last time."""
    first_move: float
    """Mean length of a coordinate's move between the first two starting points; 0 until there were two."""
    round: int
    strength: float
    rng: np.random.Generator

    @property
    def last_move(self) -> Tensor:
        """The difference of the last two starting points, as an upload; zero as long as there is only one."""
        return torch.zeros_like(self.start) if self.previous is None else self.previous - self.start

    def normal(self) -> Tensor:
        return _as(self.start, self.rng.standard_normal(len(self.start), dtype=np.float32))

    def uniform(self) -> Tensor:
        """Between -1 and 1."""
        return _as(self.start, self.rng.random(len(self.start), dtype=np.float32) * 2 - 1)


def _replay(sight: Sight) -> Tensor:
    return sight.strength * sight.last_move


def _replay_noise(sight: Sight) -> Tensor:
    """A copy with Gaussian noise, ``strength`` times as long."""
    copy = sight.last_move
    return copy + sight.strength * _rms(copy) * sight.normal()


def _zero(sight: Sight) -> Tensor:
    return torch.zeros_like(sight.start)


def _disguised(sight: Sight) -> Tensor:
    """Fraboni et al. (2021): the global model with noise that fades as 1/t."""
    if sight.first_move == 0:
        return _zero(sight)
    return sight.strength * sight.first_move / (sight.round - 1) * sight.normal()


def _random(sight: Sight) -> Tensor:
    """Uniform noise, as long as the last move."""
    length = math.sqrt(3) * _rms(sight.last_move)
    return sight.strength * (length or FIRST_RANDOM) * sight.uniform()


FREELOADERS: dict[str, Callable[[Sight], Tensor]] = {
    "replay": _replay,
    "replay-scaled": _replay,
    "replay-noise": _replay_noise,
    "zero": _zero,
    "disguised": _disguised,
    "random": _random,
}
ATTACKERS = ("sign-flip", "label-flip", "gaussian")
STRENGTHS = {
    "replay-scaled": 0.3,
    "replay-noise": 0.5,
    "disguised": 1.0,
    "random": 1.0,
    "sign-flip": 1.0,
    "gaussian": 10.0,
}
"""The default number of those behaviours that take one: a factor of the upload or of its noise."""
TIMES = ("late", "intermittent")
LATE = 3
"""A late freeloader is honest for one of so many parts of the run."""


@dataclass(frozen=True)
class Behaviour:
    """A way to misbehave, how strongly, and when.

    >>> Behaviour.of("replay-noise:0.1:late")
    Behaviour(name='replay-noise', strength=0.1, when='late')
    >>> [round for round in range(1, 7) if Behaviour.of("replay:late").is_active(round, rounds=6)]
    [3, 4, 5, 6]
    """

    name: str
    strength: float = 1.0
    when: str = "always"

    @classmethod
    def of(cls, text: str) -> Behaviour:
        name, *more = text.split(":")
        known = [*FREELOADERS, *ATTACKERS]
        if name not in known:
            raise unknown("behaviour", name, known)
        strength, when = STRENGTHS.get(name, 1.0), "always"
        for part in more:
            if part in TIMES and when == "always" and name in FREELOADERS:
                when = part
            elif name in STRENGTHS and _number(part) is not None and when == "always":
                strength = _number(part) or 0.0
            else:
                raise InvalidInput(f"The behaviour is '{text}'; write it as one of {_manual(name)}.")
        return cls(name, strength, when)

    @property
    def ever_trains(self) -> bool:
        return self.name in ATTACKERS or self.when != "always"

    def is_active(self, round_number: int, rounds: int) -> bool:
        if self.when == "late":
            return round_number > rounds // LATE
        return self.when == "always" or round_number % 2 == 0

    def rides(self, round_number: int, rounds: int) -> bool:
        """Whether a client sends what it made up instead of what it learnt."""
        return self.name in FREELOADERS and self.is_active(round_number, rounds)


@dataclass(frozen=True)
class Misfits:
    """The clients that misbehave, and how."""

    clients: frozenset[int]
    behaviour: Behaviour
    seed: int

    def make_up(self, client: int, round_number: int, start: Tensor, memory: Memory) -> Tensor:
        """A freeloader's upload."""
        sight = Sight(
            start=start,
            previous=memory.get("start"),
            first_move=float(self.remember(start, memory)["first_move"]),
            round=round_number,
            strength=self.behaviour.strength,
            rng=self._rng(client, round_number),
        )
        return FREELOADERS[self.behaviour.name](sight)

    def remember(self, start: Tensor, memory: Memory) -> Memory:
        """What a client keeps in mind of the starting points it was sent."""
        first_move = memory.get("first_move", torch.zeros(1))
        if "start" in memory and first_move == 0:
            first_move = (start - memory["start"]).abs().mean().reshape(1)
        return {"start": start, "first_move": first_move}

    def spoil(self, client: int, round_number: int, update: Tensor) -> Tensor:
        """What an attacker sends in place of the update it trained."""
        if self.behaviour.name == "sign-flip":
            return -self.behaviour.strength * update
        if self.behaviour.name == "gaussian":
            noise = self._rng(client, round_number).standard_normal(len(update), dtype=np.float32)
            return self.behaviour.strength * _rms(update) * _as(update, noise)
        return update

    def _rng(self, client: int, round_number: int) -> np.random.Generator:
        return generator(self.seed, "behaviour", client, round_number)


def choose_clients(count: int, groups: Sequence[str], seed: int) -> list[int]:
    """So many clients at random, from each group in proportion to its size.

    Clients lie in a row, group by group, shuffled; every (N / count)-th is taken from a random place on.

    >>> chosen = choose_clients(8, ["A"] * 7 + ["B"] * 7 + ["C"] * 6, seed=0)
    >>> len([client for client in chosen if client < 7]) in (2, 3)
    True
    """
    rng = generator(seed, "freeloaders")
    order = rng.permutation(len(groups))
    names = rng.permutation(sorted(set(groups))).tolist()
    row = sorted(order.tolist(), key=lambda client: names.index(groups[client]))
    offset = rng.random()
    return sorted(row[int((place + offset) * len(row) / count)] for place in range(count))


def _rms(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector)) / math.sqrt(len(vector))


def _as(like: Tensor, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values).to(like)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _manual(name: str) -> str:
    ways = [name, *([f"{name}:{STRENGTHS[name]:g}"] if name in STRENGTHS else [])]
    if name in FREELOADERS:
        ways += [f"{name}:{when}" for when in TIMES]
    return ", ".join(ways)
