"""Sketches of methods that the package does not contain but its contract must support: compressed uploads."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtaco.methods import Cost, Method


@dataclass(frozen=True)
class Quantised(Method):
    """Uploads are 8-bit codes with one scale; the rounding error is added to the next upload."""

    name = "sketch-quantised"
    summary = "sends 8 bits per number"
    cost = Cost(memory=1, up=0.2)

    def client_memory(self, weights, constants):
        return {"error": torch.zeros_like(weights)}

    def finish(self, update, local):
        wanted = update + local.memory["error"]
        scale = wanted.abs().amax(-1, keepdim=True) / 127
        codes = torch.where(scale > 0, wanted / scale, torch.zeros_like(wanted)).round()
        finite = torch.isfinite(codes).all(-1, keepdim=True)
        upload = {"codes": codes.nan_to_num().to(torch.int8), "scale": scale.where(finite, scale * torch.nan)}
        return upload, {"error": wanted - codes * scale}

    def decode(self, upload):
        return {"update": upload["codes"] * upload["scale"]}


SKETCHES: list[Method] = [Quantised()]
