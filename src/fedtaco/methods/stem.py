"""STEM (Khanduri et al., 2021), as the TACO paper runs it and as published: variance-reduced momentum (STORM).

The TACO paper sends no momentum to clients, so each round restarts with v_0 = g_0. Its aggregation adds
the gradient v_i to the displacement U_i. In displacement units that is local_lr * v_i, one more step
along the momentum, which is the default of ``stem``.

In the original, momentum continues over rounds, and the server takes the last step of each round, along the mean of
the clients' momenta from the mean of their points. That is the mean of the points after K local steps, so
``stem-original`` adds no further step.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.tailored import TACO_PAPER
from fedtaco.parameters import parameter


def variance_reduced(x: Tensor, local: LocalContext, alpha: float) -> Tensor:
    """Return the momentum v_k = g(x_k) + (1 - alpha) (v_{k-1} - g(x_{k-1})), both gradients on the batch of step k.

    ``local.carry`` passes v_{k-1} and x_{k-1} from step to step; without them, v_k = g(x_k).
    """
    momentum = local.gradient(x)
    if "momentum" in local.carry:
        stale = local.carry["momentum"] - local.gradient(local.carry["point"])
        momentum.add_(stale, alpha=1 - alpha)
    local.carry.update(momentum=momentum, point=x.clone())
    return momentum


def _server_momentum(default: str) -> Any:
    return parameter(
        default,
        "what the server adds to U_i: local_lr * v_i (eta), v_i as printed in the paper (literal), or nothing (off)",
        choices=("eta", "literal", "off"),
    )


@dataclass(frozen=True)
class Stem(Method):
    """Steps descend along a momentum v, which restarts in every round.

        v <- g(x) + (1 - α_t) (v - g(last x)), starting at g(x)
        x <- x - local_lr * v
        w <- w - sum of p_i (U_i + local_lr v_i)

    Both gradients of a step are on the same batch.
    """

    name = "stem"
    summary = "descends along a variance-reduced momentum; the server takes one more step along it"
    category = "momentum"
    reference = f"{TACO_PAPER}, Algorithm 1"
    unequal_steps = "A client that takes more steps counts for more in the mean; its v_i counts once."
    cost = Cost(gradients=2, gradients_saved=1, vector_ops=4, up=2)

    alpha: float = parameter(0.2, "α_t, weight of the newest gradient in the momentum", low=0, high=1)
    server_momentum: str = _server_momentum("eta")

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        return variance_reduced(x, local, self.alpha)

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        return {"update": update, "momentum": local.carry["momentum"]}, local.memory

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        local_lr = uploads.constants.local_lr
        scale = {"eta": local_lr, "literal": float(local_lr > 0), "off": 0.0}[self.server_momentum]
        extra_step = scale * uploads.average("momentum")
        return server.moved(uploads.relaxation * (uploads.mean_update + extra_step))


@dataclass(frozen=True)
class StemOriginal(Stem):
    """Steps descend along a momentum v, which continues over rounds from the clients' mean.

        v <- g(w) + (1 - α_t) (V - g(x_i)) in the first step of a round
        v <- g(x) + (1 - α_t) (v - g(last x)) in all others
        x <- x - local_lr * v
        V <- sum of p_i v_i
        w <- w - sum of p_i U_i

    x_i is the point at which the client computed its last v; in its first round, v starts at g(w). Both gradients of
    a step are on the same batch. α_t and the local rate are constant here.
    """

    name = "stem-original"
    summary = "descends along a variance-reduced momentum that continues over rounds"
    reference = (
        "Khanduri et al., STEM: A Stochastic Two-Sided Momentum Algorithm Achieving Near-Optimal Sample and "
        "Communication Complexities for Federated Learning, NeurIPS 2021, Algorithm 1"
    )
    cost = Cost(gradients=2, vector_ops=4, memory=1, down=2, up=2)

    server_momentum: str = _server_momentum("off")

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"momentum": torch.zeros_like(weights)}

    def client_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"point": torch.zeros_like(weights), "seen": weights.new_zeros(1)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"momentum": server.memory["momentum"]})

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        if local.step > 0:
            return super().direction(x, local)
        seen = local.memory["seen"]
        point = torch.where(seen > 0, local.memory["point"], x)
        stale = seen * (local.received["momentum"] - local.gradient(point))
        momentum = local.gradient(x).add_(stale, alpha=1 - self.alpha)
        local.carry.update(momentum=momentum, point=x.clone())
        return momentum

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        upload, _ = super().finish(update, local)
        return upload, {"point": local.carry["point"], "seen": torch.ones_like(local.memory["seen"])}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        return super().aggregate(server, uploads).with_memory(momentum=uploads.average("momentum"))
