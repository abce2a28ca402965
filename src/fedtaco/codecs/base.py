"""The base class of codecs, which compress the vectors that clients upload; they combine with every method.

A client encodes each uploaded vector that has the size of the model; server and client decode the same payload, so
that both know exactly what is used. What a codec leaves out is treated in one of two ways:

- An **unbiased** codec is right on average over its random numbers, and what it leaves out is lost.
- A **contraction** is biased, but its error is always shorter than the vector. It is used with error feedback: the
  client adds what was left out to its next upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedtaco.methods import NamedTensors
from fedtaco.parameters import Configurable, domains
from fedtaco.randomness import generator


@dataclass(frozen=True)
class Stream:
    """The random numbers for one vector of one upload, a function of seed, round, client and name of the vector."""

    seed: int
    vector: str
    """Name of the vector, with the phase of the round."""
    round: int
    client: int

    def own(self) -> np.random.Generator:
        """Return a generator that is different for each client."""
        return generator(self.seed, f"codec/{self.vector}", self.client, self.round)

    def shared(self) -> np.random.Generator:
        """Return a generator that is the same for all clients of the round, and for the server."""
        return generator(self.seed, f"codec/{self.vector}/shared", self.round)


@dataclass(frozen=True)
class Codec(Configurable):
    """Base of codecs: frozen dataclasses whose fields are parameters, as in methods.

    A payload consists of named tensors, whose names, shapes and types depend on the length and type of the vector
    alone. ``encode`` receives finite vectors only.
    """

    kind: ClassVar[str] = "codec"
    is_lossless: ClassVar[bool] = False
    """Whether vectors are sent as they are."""
    error_feedback: ClassVar[bool] = False
    """Whether the codec is a contraction, and clients add what was left out to their next upload; else it is unbiased.
    """
    is_sparse: ClassVar[bool] = False
    """Whether a decoded vector is zero at all but a few coordinates."""

    @property
    def noise(self) -> float:
        """Largest expected squared error of a decoded vector, divided by the vector's squared norm (ω)."""
        raise TypeError(f"{type(self).__name__} is a codec and must define noise")

    def encode(self, vector: Tensor, stream: Stream) -> NamedTensors:
        """Return the payload of a vector of shape (d,)."""
        raise TypeError(f"{type(self).__name__} is a codec and must define encode()")

    def decode(self, payload: NamedTensors, length: int, stream: Stream) -> Tensor:
        """Return the vector of a payload whose names, shapes and types are right.

        Raises
        ------
        ValueError
            If no client that follows the codec could have sent the payload; the message is a clause.
        """
        raise TypeError(f"{type(self).__name__} is a codec and must define decode()")

    def __str__(self) -> str:
        """Return the name, with the ratio if there is one, as in ``topk:0.1``."""
        ratios = [str(getattr(self, name)) for name in domains(self) if name == "ratio"]
        return ":".join([self.name, *ratios])


@dataclass(frozen=True)
class NoCodec(Codec):
    """Sends vectors as they are."""

    name = "none"
    summary = "sends every number as it is"
    is_lossless = True
    noise = 0.0

    def encode(self, vector: Tensor, stream: Stream) -> NamedTensors:
        return {"numbers": vector}

    def decode(self, payload: NamedTensors, length: int, stream: Stream) -> Tensor:
        return payload["numbers"]


NO_CODEC = NoCodec()
