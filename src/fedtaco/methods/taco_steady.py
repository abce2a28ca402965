"""A TACO that settles: α sets how far the server steps, and the model is an average over rounds.

The server moves a fast point z by long steps, 1/α times the mean update, and averages z over rounds: this is the model
w. Clients start between w and z, the closer to z the better their last updates agreed. Uploads are not weighted by α,
since such weights make TACO swing (docs/stability.md). To average long steps instead of shortening them in the course
of a run is the idea of Defazio et al.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.tailored import INITIAL_ALPHA, LONGER_UPLOADS, Tailored
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class TacoSteadyUniform(Method):
    """The server takes steps of 1/a times the mean update, and the model w is the average of the points z it reaches.

        x  <- x - local_lr * g, from x = w + a (z - w)
        α_i = (1 - |U_i| / sum of |U_j|) max(0, cos(U_i, mean U))
        a  <- max(alpha_min, mean α)
        z  <- z - sum of p_i U_i / a
        w  <- w + (z - w) (power + 1) / (t + power), in round t = 1, 2, ...

    In w the z of round t has a weight that grows as t to the given power. If the power is very large, w is z; with
    alpha_min = 1 this is FedAvg. Nothing is tailored to single clients: it is the control of taco-steady.
    """

    name = "taco-steady-uniform"
    summary = "takes server steps whose length follows the mean α, and averages the points they reach"
    category = "adaptive server"
    reference = "fedtaco; TACO's Eq. 7, and the average of Defazio et al., The Road Less Scheduled, NeurIPS 2024"
    unequal_steps = LONGER_UPLOADS

    alpha_min: float = parameter(0.1, "smallest a: no step is longer than 1/alpha_min updates", low=0.01, high=1)
    power: float = parameter(2.0, "power of the round number by which rounds are weighted in the average", low=0)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        initial = weights.new_tensor([INITIAL_ALPHA])
        return {"fast": weights, "mean_alpha": initial, "rounds": torch.zeros_like(initial)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights + self.bounded_alpha(server) * fast_direction(server))

    def bounded_alpha(self, server: ServerState) -> float:
        """Return a, which is both the place of the clients' start between w and z, and 1 / the length of a step."""
        return max(self.alpha_min, float(server.memory["mean_alpha"]))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        rounds = server.memory["rounds"] + 1
        mean_alpha = uploads.geometry.alpha.mean().to(rounds.dtype).reshape(1)
        server = server.with_memory(mean_alpha=mean_alpha, rounds=rounds)
        step = uploads.relaxation / self.bounded_alpha(server)
        fast = server.memory["fast"] - step * uploads.mean_update
        share = (self.power + 1) / (float(rounds) + self.power)
        return replace(server, weights=torch.lerp(server.weights, fast, share)).with_memory(fast=fast)


@dataclass(frozen=True)
class TacoSteady(Tailored, TacoSteadyUniform):
    """As taco-steady-uniform, and each client moves to a point of its own between w and z during its local steps.

        x   <- x - local_lr * (g + c_i), from x = w + a (z - w)
        c_i  = (a - α_i) (z - w) / (K local_lr)
        R_i  = U_i - (a - α_i) (z - w), the update without the correction
        α_i <- (1 - |R_i| / sum of |R_j|) max(0, cos(R_i, mean R))
        a   <- max(alpha_min, mean α)
        z   <- z - sum of p_i R_i / a
        w   <- w + (z - w) (power + 1) / (t + power), in round t = 1, 2, ...

    A client whose last update agreed less with the others than their mean is moved back towards the average w, one that
    agreed more towards the fast point z.
    """

    name = "taco-steady"
    summary = "TACO that settles: α sets the length of server steps, the model is an average, nothing is weighted by α"
    category = "correction"
    cost = Cost(vector_ops=1, down=2, scalars_down=1)

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return replace(
            super().broadcast(server, cohort),
            vectors={"direction": fast_direction(server)},
            scalars={"behind": self.behind(server, cohort)},
        )

    def behind(self, server: ServerState, clients: Tensor) -> Tensor:
        """Return a - α_i of these clients: the part of z - w by which each of them is moved back."""
        alpha = self.cohort_alpha(server, clients).to(server.weights.dtype)
        return self.bounded_alpha(server) - alpha

    def correction(self, local: LocalContext) -> Tensor:
        return local.received["behind"] * local.per_step(local.received["direction"])

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        corrections = self.behind(server, uploads.clients)[:, None] * fast_direction(server)
        uncorrected = {**uploads.vectors, "update": uploads.vectors["update"] - corrections}
        return super().aggregate(server, replace(uploads, vectors=uncorrected))


def fast_direction(server: ServerState) -> Tensor:
    """Return z - w, the direction from the average to the fast point."""
    return server.memory["fast"] - server.weights
