"""Sketches of methods that the package does not contain but its contract must support.

Unequal numbers of steps (FedNova), a survey phase (Mime), full gradients (MimeLite), memory that contains a number
(STEM with momentum that continues over rounds), and compressed uploads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtaco.methods import Broadcast, Cost, Method, Stem
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedNova(Method):
    """Divides each upload by its effective number of steps, so that clients with more steps do not weigh more."""

    name = "sketch-fednova"
    summary = "normalises uploads by their number of steps"

    def aggregate(self, server, uploads):
        per_step = uploads.aggregation_weights / uploads.client_effective_steps
        mean_direction = (per_step.to(server.weights)[:, None] * uploads.vectors["update"]).sum(0)
        return server.moved(uploads.effective_steps * mean_direction)


@dataclass(frozen=True)
class MimeLite(Method):
    """Momentum from full gradients at the broadcast point, which stays fixed during a round."""

    name = "sketch-mime-lite"
    summary = "uses momentum that is fixed during a round"
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
    """Surveys full gradients, whose mean corrects every step of the training phase."""

    name = "sketch-mime"
    summary = "corrects each gradient by the full gradient of the cohort"
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
    """STEM as published: momentum continues over rounds, from the point where the client stopped."""

    name = "sketch-stem-original"
    summary = "continues momentum over rounds"
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


SKETCHES: list[Method] = [FedNova(), MimeLite(), Mime(), CarriedStem(), Quantised()]
