"""4 bits per number."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.codecs.quantizer import Quantizer

ZERO = 8
"""The four bits that stand for the level 0."""


@dataclass(frozen=True)
class Q4(Quantizer):
    """Sends two numbers per byte, levels from -7 to 7, and a scale per 512 numbers."""

    name = "q4"
    summary = "rounds each number at random to 4 bits, with a scale per 512 numbers"
    levels = 7

    def pack(self, levels: Tensor) -> Tensor:
        pairs = functional.pad(levels, (0, len(levels) % 2)).add(ZERO).to(torch.uint8).view(-1, 2)
        return pairs[:, 0] * 16 + pairs[:, 1]

    def unpack(self, packed: Tensor, length: int) -> Tensor:
        levels = torch.stack([packed // 16, packed % 16], dim=1).flatten().to(torch.int8) - ZERO
        if levels[length:].any():
            raise ValueError("the unused bits are not empty")
        return levels[:length]
