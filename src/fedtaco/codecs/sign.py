"""Signs with a scale, with error feedback (EF-signSGD; Karimireddy et al., 2019)."""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.codecs.base import Codec, Stream
from fedtaco.codecs.bits import pack_bits, unpack_bits
from fedtaco.methods import NamedTensors


@dataclass(frozen=True)
class Sign(Codec):
    """Sends one bit per number, its sign, and the mean absolute value of all numbers.

    The squared error is ‖u‖² - ‖u‖₁² / d.
    """

    name = "sign"
    summary = "sends the sign of each number and one scale, with error feedback"
    error_feedback = True

    @property
    def noise(self) -> float:
        return 1.0

    def encode(self, vector: Tensor, stream: Stream) -> NamedTensors:
        return {"signs": pack_bits(vector >= 0), "scale": vector.abs().double().mean(0, keepdim=True).to(vector.dtype)}

    def decode(self, payload: NamedTensors, length: int, stream: Stream) -> Tensor:
        scale = payload["scale"]
        if scale < 0:
            raise ValueError("the scale is negative")
        return scale.where(unpack_bits(payload["signs"], length), -scale)
