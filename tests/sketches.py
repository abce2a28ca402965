"""A codec of a user's own, which the package does not contain but must support."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtaco.codecs import Codec


@dataclass(frozen=True)
class Rounded(Codec):
    """Sends 8-bit codes, rounded to the nearest, with one scale and error feedback."""

    name = "sketch-rounded"
    summary = "rounds each number to 8 bits"
    error_feedback = True
    noise = 0.5

    def encode(self, vector, stream):
        scale = vector.abs().amax(0, keepdim=True) / 127
        codes = torch.where(scale > 0, vector / scale, torch.zeros_like(vector)).round()
        return {"codes": codes.to(torch.int8), "scale": scale}

    def decode(self, payload, length, stream):
        return payload["codes"] * payload["scale"]


OWN_CODEC = "sketches:Rounded"
