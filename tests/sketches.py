"""Methods of each kind that the contract must carry, as sketches that only the tests know.

Unequal steps (FedNova), a second phase (Mime), a full pass (MimeLite), memory that includes numbers
(STEM with carried momentum), and compressed uploads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtaco.methods import Broadcast, Cost, Method, Stem
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedNova(Method):
    """Every upload counts by its direction, whatever number of steps made it."""

    name = "sketch-fednova"
    summary = "normalises uploads by their steps"

    def aggregate(self, server, uploads):
        per_step = uploads.aggregation_weights / uploads.steps
        mean_direction = (per_step.to(server.weights)[:, None] * uploads.vectors["update"]).sum(0)
        return server.moved(uploads.effective_steps * mean_direction)


@dataclass(frozen=True)
class MimeLite(Method):
    """The server's momentum comes from full gradients at the broadcast point."""

    name = "sketch-mime-lite"
    summary = "keeps a frozen momentum in the round"
    cost = Cost(full_passes=1, vector_ops=1, down=2, up=2)
    beta: float = parameter(0.9, "momentum", low=0, high=1)

    def server_memory(self, weights, constants):
        return {"momentum": torch.zeros_like(weights)}

    def broadcast(self, server, cohort):
        return Broadcast(server.weights, vectors={"momentum": server.memory["momentum"]})

    def correction(self, local):
        return self.beta * local.received["momentum"]

    def direction(self, x, local):
        return (1 - self.beta) * local.gradient(x) + local.correction

    def finish(self, update, local):
        return {"update": update, "gradient": local.full_gradient(local.start)}, local.memory

    def aggregate(self, server, uploads):
        momentum = (1 - self.beta) * uploads.average("gradient") + self.beta * server.memory["momentum"]
        return super().aggregate(server, uploads).with_memory(momentum=momentum)


@dataclass(frozen=True)
class Mime(MimeLite):
    """A first phase asks for full gradients, whose mean corrects every step of the second."""

    name = "sketch-mime"
    summary = "corrects each gradient by the cohort's full gradient"
    cost = Cost(gradients=2, full_passes=1, vector_ops=3, down=4, up=2)
    surveys = True

    def server_memory(self, weights, constants):
        return {**super().server_memory(weights, constants), "mean_gradient": torch.zeros_like(weights)}

    def survey(self, local):
        return {"gradient": local.full_gradient(local.start)}

    def absorb(self, server, uploads):
        uploads.aggregation_weights = uploads.shares
        return server.with_memory(mean_gradient=uploads.average("gradient"))

    def broadcast(self, server, cohort):
        return Broadcast(server.weights, vectors={n: server.memory[n] for n in ("momentum", "mean_gradient")})

    def direction(self, x, local):
        corrected = local.gradient(x) - local.gradient(local.start) + local.received["mean_gradient"]
        return (1 - self.beta) * corrected + local.correction

    def finish(self, update, local):
        return {"update": update}, local.memory

    def aggregate(self, server, uploads):
        momentum = (1 - self.beta) * server.memory["mean_gradient"] + self.beta * server.memory["momentum"]
        return Method.aggregate(self, server, uploads).with_memory(momentum=momentum)


@dataclass(frozen=True)
class CarriedStem(Stem):
    """STEM as published: momentum goes on over rounds, from the point where the client stopped."""

    name = "sketch-stem-original"
    summary = "carries momentum over rounds"
    cost = Cost(gradients=2, vector_ops=4, memory=1, down=2, up=2)

    def server_memory(self, weights, constants):
        return {"momentum": torch.zeros_like(weights)}

    def client_memory(self, weights, constants):
        return {"point": torch.zeros_like(weights), "seen": weights.new_zeros(1)}

    def broadcast(self, server, cohort):
        return Broadcast(server.weights, vectors={"momentum": server.memory["momentum"]})

    def direction(self, x, local):
        gradient = local.gradient(x)
        if local.step == 0:
            seen = local.memory["seen"]
            point, carried = seen * local.memory["point"] + (1 - seen) * x, local.received["momentum"]
            stale = seen * (carried - local.gradient(point))
        else:
            stale = local.carry["momentum"] - local.gradient(local.carry["point"])
        momentum = gradient + (1 - self.alpha) * stale
        local.carry.update(momentum=momentum, point=x.clone())
        return momentum

    def finish(self, update, local):
        upload, _ = super().finish(update, local)
        return upload, {"point": local.carry["point"], "seen": torch.ones_like(local.memory["seen"])}

    def aggregate(self, server, uploads):
        return super().aggregate(server, uploads).with_memory(momentum=uploads.average("momentum"))


@dataclass(frozen=True)
class Quantised(Method):
    """Uploads are eight-bit codes with one scale; what rounding lost is added to the next upload."""

    name = "sketch-quantised"
    summary = "sends eight bits a number"
    cost = Cost(memory=1, up=0.2)

    def client_memory(self, weights, constants):
        return {"lost": torch.zeros_like(weights)}

    def finish(self, update, local):
        wanted = update + local.memory["lost"]
        scale = wanted.abs().amax(-1, keepdim=True) / 127
        codes = torch.where(scale > 0, wanted / scale, torch.zeros_like(wanted)).round()
        finite = torch.isfinite(codes).all(-1, keepdim=True)
        upload = {"codes": codes.nan_to_num().to(torch.int8), "scale": scale.where(finite, scale * torch.nan)}
        return upload, {"lost": wanted - codes * scale}

    def decode(self, upload):
        return {"update": upload["codes"] * upload["scale"]}


SKETCHES: list[Method] = [FedNova(), MimeLite(), Mime(), CarriedStem(), Quantised()]
