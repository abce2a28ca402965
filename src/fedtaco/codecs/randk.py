"""Random coordinates, the same for all clients of a round."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedtaco.codecs.base import Codec, Stream
from fedtaco.codecs.topk import coordinates
from fedtaco.methods import NamedTensors
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class RandK(Codec):
    """Sends k coordinates, multiplied by d/k, so that a decoded vector is right on average.

    Server and clients draw the same coordinates, from the seed and the round, so that only values are sent. All
    clients of a round share them: cosines between uploads keep their meaning. Which numbers are drawn depends on the
    generator's raw bits alone, which do not change between versions of numpy.
    """

    name = "randk"
    summary = "sends random coordinates, randk:0.1 a tenth of them, the same ones from all clients of a round"
    is_sparse = True

    ratio: float = parameter(0.1, "fraction of the coordinates that are sent", low=0, open_low=True, high=1)

    @property
    def noise(self) -> float:
        return 1 / self.ratio - 1

    def encode(self, vector: Tensor, stream: Stream) -> NamedTensors:
        return {"values": vector[self._places(len(vector), stream)]}

    def decode(self, payload: NamedTensors, length: int, stream: Stream) -> Tensor:
        values, places = payload["values"], self._places(length, stream)
        return values.new_zeros(length).index_copy_(0, places, values * (length / len(values)))

    def _places(self, length: int, stream: Stream) -> Tensor:
        bits = stream.shared().bit_generator.random_raw(length)
        count = coordinates(self.ratio, length)
        chosen = np.argpartition(bits, count - 1)[:count] if count < length else np.arange(length)
        return torch.from_numpy(np.sort(chosen))
