"""TACO: tailored adaptive correction and aggregation (paper, Eqs. 7-9 and Algorithm 2).

Each client adds a multiple of the last global direction G to its gradients; the multiple is larger if the
client's last upload was long or pointed away from the mean upload. The server weights uploads by coefficients
of the same formula.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.tailored import LONGER_UPLOADS, TACO_PAPER, Tailored
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class TacoCorrection(Tailored):
    """Clients add a multiple of the last global direction to their gradients, tailored to each (Eq. 8).

        x   <- x - local_lr * (g + γ (1 - α_i) Δ)
        α_i <- (1 - |U_i| / sum of |U_j|) max(0, cos(U_i, mean U))
        G   <- sum of p_i U_i / (K local_lr)
        w   <- w - sum of p_i U_i

    On the client Δ is the last round's accumulated direction, K times the gradient-scale G
    (``delta_scale="accumulated"``), so that at the default γ = 1/K the correction is (1 - α_i) G.
    ``"literal"`` takes Eq. 8 with Eq. 9's Δ as printed, which at γ = 1/K is K times weaker.
    """

    name = "taco-correction"
    summary = "TACO's tailored correction without its aggregation"
    category = "correction"
    reference = TACO_PAPER
    unequal_steps = f"{LONGER_UPLOADS} The last direction is divided by the weighted mean of the K_i."
    cost = Cost(vector_ops=1, down=2, scalars_down=1)

    gamma: float | None = parameter(None, "γ, the largest correction factor; 1/K unless given", low=0, high=1)
    delta_scale: str = parameter(
        "accumulated",
        "scale of the global direction that clients add: summed over K steps (accumulated) or as printed (literal)",
        choices=("accumulated", "literal"),
    )

    def gain(self, local_steps: int) -> float:
        """Return the factor of (1 - α_i) G in the correction: γK if ``accumulated``, γ if ``literal``.

        With the default γ = 1/K, γK is exactly 1, which (1/K) * K in floating point may not be.
        """
        accumulated = self.delta_scale == "accumulated"
        if self.gamma is None:
            return 1.0 if accumulated else 1 / local_steps
        return self.gamma * local_steps if accumulated else self.gamma

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), "direction": torch.zeros_like(weights)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return replace(super().broadcast(server, cohort), vectors={"direction": server.memory["direction"]})

    def correction(self, local: LocalContext) -> Tensor:
        factor = 1 - local.received["alpha"]
        return self.gain(local.constants.local_steps) * factor * local.received["direction"]

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        moved = super().aggregate(server, uploads)
        return moved.with_memory(direction=uploads.per_step(uploads.mean_update))


@dataclass(frozen=True)
class TacoUniform(TacoCorrection):
    """A control that separates tailoring from momentum: every client receives the cohort's mean α.

        x <- x - local_lr * (g + γ (1 - mean α) Δ)

    Everything else is as in taco-correction.
    """

    name = "taco-uniform"
    summary = "TACO's correction with the mean α for every client, nothing tailored"

    def cohort_alpha(self, server: ServerState, cohort: Tensor) -> Tensor:
        alpha = super().cohort_alpha(server, cohort)
        return alpha.mean().expand_as(alpha)


def tailored_weights(uploads: Uploads) -> Tensor:
    """Return Eq. 9's p_i, in proportion to the α_i of this round's uploads."""
    return uploads.weights_proportional_to(uploads.geometry.alpha)


@dataclass(frozen=True)
class TacoAggregation(Method):
    """Plain local steps, and uploads weighted by α_i (Eq. 9).

        α_i = (1 - |U_i| / sum of |U_j|) max(0, cos(U_i, mean U))
        p_i in proportion to α_i

    Everything else is as in FedAvg.
    """

    name = "taco-aggregation"
    summary = "TACO's tailored aggregation without its correction"
    category = "aggregation"
    reference = TACO_PAPER
    unequal_steps = LONGER_UPLOADS

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return tailored_weights(uploads)


@dataclass(frozen=True)
class Taco(TacoCorrection):
    """Algorithm 2: the tailored correction of taco-correction and the tailored aggregation of taco-aggregation.

        x   <- x - local_lr * (g + γ (1 - α_i) Δ)
        α_i <- (1 - |U_i| / sum of |U_j|) max(0, cos(U_i, mean U))
        w   <- w - sum of p_i U_i, p_i in proportion to α_i

    Δ is the last round's sum of p_i U_i / local_lr, which is accumulated over K steps, so that at the default γ = 1/K
    the correction is (1 - α_i) times the mean direction of a step. The method returns w + (1 - mean α)(w - last w).
    """

    name = "taco"
    summary = "adds a part of the global direction tailored to each client, and weights uploads by the same α"

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return tailored_weights(uploads)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), "previous": weights}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        return super().aggregate(server, uploads).with_memory(previous=server.weights)

    def output(self, server: ServerState) -> Tensor:
        """Return z = w + (1 - mean α)(w - previous w), as Algorithm 2 does; w if every client was expelled."""
        alpha = server.memory["alpha"]
        if alpha.isnan().all():
            return server.weights
        factor = 1 - float(alpha.nanmean())
        return server.weights + factor * (server.weights - server.memory["previous"])
