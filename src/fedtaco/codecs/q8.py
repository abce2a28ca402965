"""8 bits per number."""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.codecs.quantizer import Quantizer


@dataclass(frozen=True)
class Q8(Quantizer):
    """Sends one byte per number, a level from -127 to 127, and a scale per 512 numbers."""

    name = "q8"
    summary = "rounds each number at random to 8 bits, with a scale per 512 numbers"
    levels = 127

    def pack(self, levels: Tensor) -> Tensor:
        return levels

    def unpack(self, packed: Tensor, length: int) -> Tensor:
        return packed
