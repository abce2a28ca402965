"""Scaffold (Karimireddy et al., 2020): control variates cancel client drift (paper, Algorithm 1)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import (
    Broadcast,
    Cost,
    Expulsion,
    LocalContext,
    Method,
    NamedTensors,
    ServerState,
    Uploads,
)
from fedtaco.methods.constants import Constants
from fedtaco.methods.tailored import Tailored
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class Scaffold(Method):
    """x <- x - local_lr * (g + a (c - c_i)), where c_i is the client's mean gradient of its last round.

    All control variates start at zero. After the round c_i is set to U_i / (K local_lr) - a (c - c_i), which is
    the mean gradient for every a (the paper states the case a = 1); with momentum, the number of effective steps
    replaces K, and the mean is weighted. c changes by the sum of the cohort's changes divided by the number of *all*
    clients, N, so that c remains the mean of the c_i of all clients.
    """

    name = "scaffold"
    summary = "adds the difference of global and own control variate to each gradient"
    cost = Cost(vector_ops=1, memory=1, down=2, up=2)

    alpha: float = parameter(1.0, "α, strength of the correction", low=0)

    def strength(self, local: LocalContext) -> float | Tensor:
        """Return a, the factor of the correction."""
        return self.alpha

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), "variate": torch.zeros_like(weights)}

    def client_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"variate": torch.zeros_like(weights)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"variate": server.memory["variate"]})

    def correction(self, local: LocalContext) -> Tensor:
        return self.strength(local) * (local.received["variate"] - local.memory["variate"])

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        assert local.correction is not None
        variate = local.per_step(update) - local.correction
        change = variate - local.memory["variate"]
        return {"update": update, "variate_change": change}, {"variate": variate}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        change = uploads.vectors["variate_change"].sum(0, dtype=torch.float64) / uploads.constants.clients
        variate = server.memory["variate"]
        return super().aggregate(server, uploads).with_memory(variate=variate + change.to(variate.dtype))

    def mirror(self, memory: NamedTensors, upload: NamedTensors) -> NamedTensors:
        return {"variate": memory["variate"] + upload["variate_change"]}

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Make c the mean of the c_i of the remaining clients."""
        left = expulsion.members - len(expulsion.clients)
        if left == 0:
            return server
        variate = expulsion.members * server.memory["variate"]
        for memory in expulsion.memories.values():
            variate = variate - memory["variate"]
        return server.with_memory(variate=variate / left)


@dataclass(frozen=True)
class ScaffoldTaco(Tailored, Scaffold):
    """Scaffold whose correction is tailored by TACO's coefficients (paper, Fig. "Performance gain in
    prior methods").

    With unequal strengths the corrections no longer cancel over the clients, so the fixed point is
    biased by the covariance of strength and variate.
    """

    name = "scaffold-taco"
    summary = "Scaffold with a correction tailored to each client by TACO's α"
    cost = Cost(vector_ops=1, memory=1, down=2, up=2, scalars_down=1)

    coefficient: str = parameter(
        "factor",
        "strength of a client's correction: α(1 - α_i) (factor) or α_i as in the paper (replace-alpha)",
        choices=("factor", "replace-alpha"),
    )

    def strength(self, local: LocalContext) -> float | Tensor:
        alpha = local.received["alpha"]
        return alpha if self.coefficient == "replace-alpha" else self.alpha * (1 - alpha)
