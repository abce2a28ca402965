"""Stochastic quantisation in buckets (QSGD; Alistarh et al., 2017), with the largest number of a bucket as its scale.

In a bucket with the scale σ = max |u|, a number u is sent as its sign and a level l = floor(S |u| / σ + ξ), where ξ is
uniform in [0, 1), and decoded as σ * sign * l / S. Since E[l] = S |u| / σ, decoding is right on average; the expected
squared error is at most (σ / 2S)² per number, and so at most B / 4S² times the squared norm of the bucket.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.codecs.base import Codec, Stream
from fedtaco.methods import NamedTensors

BUCKET = 512
"""Numbers per bucket, B."""


@dataclass(frozen=True)
class Quantizer(Codec, ABC):
    """Base of quantisers; a subclass packs the signed levels into bytes."""

    levels: ClassVar[int]
    """Highest level, S."""

    @property
    def noise(self) -> float:
        return BUCKET / (4 * self.levels**2)

    def encode(self, vector: Tensor, stream: Stream) -> NamedTensors:
        padded = functional.pad(vector, (0, -len(vector) % BUCKET)).view(-1, BUCKET)
        scales = padded.abs().amax(1)
        shares = padded / scales.where(scales > 0, torch.ones_like(scales))[:, None]
        random = torch.from_numpy(stream.own().random(len(vector), dtype="float32"))
        shares = shares.flatten()[: len(vector)]
        levels = (shares.abs() * self.levels + random).floor().clamp(max=self.levels)
        return {"levels": self.pack(levels.copysign(shares).to(torch.int8)), "scales": scales}

    def decode(self, payload: NamedTensors, length: int, stream: Stream) -> Tensor:
        scales, levels = payload["scales"], self.unpack(payload["levels"], length)
        if (levels.abs() > self.levels).any() or (levels == -128).any():
            raise ValueError(f"a level is above {self.levels}")
        if (scales < 0).any():
            raise ValueError("a scale is negative")
        return levels.to(scales.dtype) / self.levels * scales.repeat_interleave(BUCKET)[:length]

    @abstractmethod
    def pack(self, levels: Tensor) -> Tensor:
        """Return signed levels as they are sent."""

    @abstractmethod
    def unpack(self, packed: Tensor, length: int) -> Tensor:
        """Return the signed levels of packed ones."""
