"""The contract of behaviours, which say how simulated clients deviate from honest training."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedtaco.data import TensorSamples
from fedtaco.errors import InvalidInput
from fedtaco.parameters import Configurable, domains, parameter

LATE = 3
"""A late freeloader is honest in the first 1/LATE of the rounds."""
TIMES = ("late", "intermittent")
"""Values of ``when`` with which a freeloader trains in some rounds."""


@dataclass(frozen=True)
class ClientView:
    """What a misbehaving client knows: what it receives, and its own memory of earlier rounds."""

    start: Tensor
    """The starting point that the server sends in this round."""
    previous: Tensor | None
    """The starting point that the client received the last time; ``None`` in its first round."""
    first_move: float
    """Mean absolute change of a coordinate between the first two starting points; 0 until there are two."""
    round: int
    rng: np.random.Generator
    """Generator of random numbers for this client and round."""

    @property
    def last_move(self) -> Tensor:
        """The last move of the global model, ``previous - start``, as an update; zero if there is no previous point."""
        return torch.zeros_like(self.start) if self.previous is None else self.previous - self.start

    def normal(self) -> Tensor:
        """Draw a standard normal vector."""
        return self._like_start(self.rng.standard_normal(len(self.start), dtype=np.float32))

    def uniform(self) -> Tensor:
        """Draw a vector uniformly between -1 and 1."""
        return self._like_start(self.rng.random(len(self.start), dtype=np.float32) * 2 - 1)

    def _like_start(self, values: npt.NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(values).to(self.start)


@dataclass(frozen=True)
class Behaviour(Configurable):
    """Honest training, and the base of behaviours. An attacker overrides ``change_samples`` or ``change_update``."""

    kind: ClassVar[str] = "behaviour"
    name: ClassVar[str] = "honest"
    summary: ClassVar[str] = "trains honestly"

    @property
    def ever_trains(self) -> bool:
        """Whether the client trains in any round."""
        return True

    def freeloads(self, round_number: int, rounds: int) -> bool:
        """Return whether the client skips training in a round and forges its upload."""
        return False

    def change_samples(self, samples: TensorSamples, classes: int) -> TensorSamples:
        """Return the samples that the client trains on instead of its own."""
        return samples

    def change_update(self, update: Tensor, view: ClientView) -> Tensor:
        """Return what the client sends instead of the update that it trained."""
        return update


@dataclass(frozen=True)
class Freeloader(Behaviour):
    """Base of behaviours that forge an upload instead of training.

    >>> from fedtaco.trust.behaviours import parse_behaviour
    >>> late = parse_behaviour("replay:late")
    >>> [number for number in range(1, 7) if late.freeloads(number, rounds=6)]
    [3, 4, 5, 6]
    """

    when: str = parameter("always", "rounds in which the client freeloads", choices=("always", *TIMES))

    @property
    def ever_trains(self) -> bool:
        return self.when != "always"

    def freeloads(self, round_number: int, rounds: int) -> bool:
        if self.when == "late":
            return round_number > rounds // LATE
        return self.when == "always" or round_number % 2 == 0

    def forge(self, view: ClientView) -> Tensor:
        """Return the update that the client sends without training."""
        raise TypeError(f"{type(self).__name__} forges its uploads and must define forge()")


def rms(vector: Tensor) -> float:
    """Return the root mean square of a vector."""
    return float(torch.linalg.vector_norm(vector)) / math.sqrt(len(vector))


def parse_options(cls: type[Behaviour], options: list[str], spec: str) -> Behaviour:
    """Return a behaviour; ``options`` are the parts of ``spec``, ``name:strength:when``, after the name."""
    given: dict[str, float | str] = {}
    for option in options:
        if option in TIMES and "when" in domains(cls) and "when" not in given:
            given["when"] = option
        elif _number(option) is not None and "strength" in domains(cls) and "when" not in given:
            given["strength"] = _number(option) or 0.0
        else:
            raise InvalidInput(f"The behaviour '{spec}' is not valid; write it as one of {_forms(cls)}.")
    return cls(**given)


def _number(text: str) -> float | None:
    """Return a finite number, or ``None`` if the text is not one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _forms(cls: type[Behaviour]) -> str:
    """Return examples of how a behaviour may be written."""
    defaults = {field.name: field.default for field in fields(cls)}
    forms = [cls.name, *([f"{cls.name}:{defaults['strength']:g}"] if "strength" in defaults else [])]
    return ", ".join(forms + [f"{cls.name}:{when}" for when in TIMES if "when" in defaults])
