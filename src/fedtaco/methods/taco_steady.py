"""A TACO that settles: α sets how far the server steps, and the model is an average over rounds.

The server moves a fast point z by 1/a times the mean update, where a is the mean α of the uploads: the less they agree,
the shorter is their mean, and the more it is multiplied. The model w is the running average of z, and clients start
between the two. Uploads are not weighted by α, since such weights make TACO swing (docs/stability.md). Averaging long
steps, instead of shortening them during a run, is the idea of Defazio et al.

Two bounds keep z from being thrown away: the step of round t is at most t times the mean update, so that the first
steps are short, and no upload moves z further than the median length of the uploads. An upload that is far too long
would otherwise lower the mean α, and be multiplied by 1/α.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.tailored import LONGER_UPLOADS, Tailored
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class TacoSteadyUniform(Method):
    """The server takes steps of 1/a times the mean update, or shorter, and w is the average of the points z it reaches.

        x  <- x - local_lr * g, from x = w + a (z - w)
        α_i = (1 - |U_i| / sum of |U_j|) max(0, cos(U_i, mean U))
        a  <- max(alpha_min, mean α over this round's uploads, 1 / t)
        b   = largest p_i |U_i| / median |U_j|
        z  <- z - sum of p_i U_i / max(a, b)
        w  <- w + (z - w) (power + 1) / (t + power), t = 1, 2, ...

    z starts at w and a at 1; t counts the rounds with uploads. The α of a client that is alone in its round is 1. The
    median is that of the uploads that are not zero. Nothing is tailored to single clients: this is the control of
    taco-steady. With a very large power and alpha_min = 1 it is FedAvg, as long as no p_i |U_i| exceeds the median.
    """

    name = "taco-steady-uniform"
    summary = "takes server steps whose length follows the mean α, and averages the points they reach"
    category = "adaptive server"
    reference = "fedtaco; TACO's Eq. 7, and the average of Defazio et al., The Road Less Scheduled, NeurIPS 2024"
    unequal_steps = LONGER_UPLOADS

    alpha_min: float = parameter(
        0.1, "lower bound of a: the server steps at most 1/alpha_min times the mean update", low=0.01, high=1
    )
    power: float = parameter(2.0, "the point of round t enters the average with a weight of about t^power", low=0)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        one = torch.ones(1, dtype=torch.float64, device=weights.device)
        return {"fast": weights, "bounded_alpha": one, "rounds": torch.zeros_like(one)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights + float(server.memory["bounded_alpha"]) * _fast_direction(server))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        rounds = server.memory["rounds"] + 1
        mean_alpha = float(uploads.geometry.alpha.mean())
        a = max(self.alpha_min, mean_alpha, 1 / float(rounds))
        step = uploads.relaxation / max(a, _longest_part(uploads))
        fast = server.memory["fast"] - step * uploads.mean_update
        averaging_weight = (self.power + 1) / (float(rounds) + self.power)
        moved = replace(server, weights=torch.lerp(server.weights, fast, averaging_weight))
        return moved.with_memory(fast=fast, bounded_alpha=torch.full_like(rounds, a), rounds=rounds)


@dataclass(frozen=True)
class TacoSteady(Tailored, TacoSteadyUniform):
    """The server steps further if clients disagree, w is the average of its points z, and α_i shifts each client.

        x   <- x - local_lr * (g + c_i), from x = w + a (z - w)
        c_i  = (a - α_i) (z - w) / (K local_lr)
        U_i  = x_0 - x_K - K local_lr c_i, the update without the shift
        α_i <- (1 - |U_i| / sum of |U_j|) max(0, cos(U_i, mean U))
        a   <- max(alpha_min, mean α over this round's uploads, 1 / t)
        b    = largest p_i |U_i| / median |U_j|
        z   <- z - sum of p_i U_i / max(a, b)
        w   <- w + (z - w) (power + 1) / (t + power), t = 1, 2, ...

    Everything but the shift c_i is as in taco-steady-uniform: z starts at w and a at 1; t counts the rounds with
    uploads; the α of a client that is alone in its round is 1; the median is that of the uploads that are not zero. The
    shift moves a client from w + a (z - w) to w + α_i (z - w) during its steps: back towards the average w if α_i < a,
    on towards the fast point z if α_i > a. Before a client's first upload, its α_i is 0.1.
    """

    name = "taco-steady"
    summary = "TACO that settles: α sets the length of server steps, the model is an average, nothing is weighted by α"
    category = "correction"
    cost = Cost(vector_ops=1, down=2, scalars_down=2)

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        message = super().broadcast(server, cohort)
        alpha = message.scalars["alpha"]
        bounded = torch.full_like(alpha, float(server.memory["bounded_alpha"]))
        return replace(
            message, vectors={"direction": _fast_direction(server)}, scalars={"alpha": alpha, "bounded_alpha": bounded}
        )

    def correction(self, local: LocalContext) -> Tensor:
        behind = local.received["bounded_alpha"] - local.received["alpha"]
        return behind * local.per_step(local.received["direction"])

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        assert local.correction is not None
        shift = local.over_all_steps(local.correction)
        return super().finish(update - shift, local)


def _longest_part(uploads: Uploads) -> float:
    """Return b, the largest p_i |U_i| over the median length of the uploads that are not zero; 0 if all are zero."""
    norms = uploads.geometry.norms
    return float((uploads.aggregation_weights * norms).max() / norms[norms > 0].quantile(0.5)) if norms.any() else 0.0


def _fast_direction(server: ServerState) -> Tensor:
    """Return z - w, the direction from the average to the fast point."""
    return server.memory["fast"] - server.weights
