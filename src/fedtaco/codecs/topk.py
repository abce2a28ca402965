"""The largest coordinates, with error feedback (Stich et al., 2018)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.codecs.base import Codec, Stream
from fedtaco.codecs.bits import pack_bits, unpack_bits
from fedtaco.methods import NamedTensors
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class TopK(Codec):
    """Sends the k coordinates with the largest absolute values; of equal ones, those with the lowest index.

    Their places are sent as indices or as a mask with one bit per coordinate, whichever is shorter.
    """

    name = "topk"
    summary = "sends the largest coordinates, topk:0.1 a tenth of them, with error feedback"
    error_feedback = True
    is_sparse = True

    ratio: float = parameter(0.1, "fraction of the coordinates that are sent", low=0, open_low=True, high=1)

    @property
    def noise(self) -> float:
        return 1 - self.ratio

    def encode(self, vector: Tensor, stream: Stream) -> NamedTensors:
        chosen = largest(vector.abs(), coordinates(self.ratio, len(vector)))
        return {"values": vector[chosen], "places": self._places(chosen, len(vector))}

    def decode(self, payload: NamedTensors, length: int, stream: Stream) -> Tensor:
        values, places = payload["values"], payload["places"]
        if places.dtype == torch.uint8:
            chosen = unpack_bits(places, length).nonzero().flatten()
            if len(chosen) != len(values):
                raise ValueError(f"it marks {len(chosen)} places for {len(values)} values")
        else:
            chosen = places.long()
            if (chosen < 0).any() or (chosen >= length).any() or (chosen.diff() <= 0).any():
                raise ValueError(f"its indices are not increasing numbers from 0 to {length - 1}")
        return values.new_zeros(length).index_copy_(0, chosen, values)

    def _places(self, chosen: Tensor, length: int) -> Tensor:
        if 4 * len(chosen) <= -(-length // 8):
            return chosen.to(torch.int32)
        return pack_bits(torch.zeros(length, dtype=torch.bool).index_fill_(0, chosen, True))


def coordinates(ratio: float, length: int) -> int:
    """Return the number of coordinates that are sent, at least one.

    >>> coordinates(0.01, 44_426), coordinates(0.01, 3)
    (445, 1)
    """
    return min(length, math.ceil(ratio * length))


def largest(sizes: Tensor, count: int) -> Tensor:
    """Return the indices of the largest entries, in increasing order; of equal ones, the lowest indices.

    >>> largest(torch.tensor([1.0, 3.0, 1.0, 1.0]), 2)
    tensor([0, 1])
    """
    threshold = sizes.kthvalue(len(sizes) - count + 1).values
    above = sizes > threshold
    equal = (sizes == threshold).nonzero().flatten()[: count - int(above.sum())]
    return above.index_fill_(0, equal, True).nonzero().flatten()
