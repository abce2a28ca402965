"""SCAFFOLD-M (Cheng et al., 2024): Scaffold whose corrected gradients are mixed with a global momentum.

The server sends one vector, h = β c + (1 - β) G. The change of c_i follows from the update, so the server derives the
change of c from the uploads, and clients send nothing else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.averaged_memory import AveragedMemory
from fedtaco.methods.base import Broadcast, LocalContext, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class ScaffoldM(AveragedMemory):
    """Steps mix Scaffold's corrected gradient with the last global direction G.

        x   <- x - local_lr * (β (g + c - c_i) + (1 - β) G)
        c_i <- c_i + (U_i / (K_i local_lr) - β c - (1 - β) G) / β
        c   <- c + (sum of the changes of c_i over the cohort) / N
        G   <- sum of p_i U_i / (K local_lr)
        w   <- w - sum of p_i U_i

    c_i becomes the client's mean gradient of the round. With β = 1 this is Scaffold; with c and c_i at zero it is
    FedCM.
    """

    name = "scaffold-m"
    summary = "mixes Scaffold's corrected gradient with the last global direction, damped"
    category = "momentum"
    reference = "Cheng et al., Momentum Benefits Non-IID Federated Learning Simply and Provably, ICLR 2024"
    unequal_steps = "c_i divides U_i by the client's own K_i, G by the weighted mean of all K_i."
    cost = Cost(vector_ops=2, memory=1, down=2)
    averaged = ("variate",)
    estimates_from = "update"

    beta: float = parameter(0.1, "β, weight of the corrected gradient", low=0, open_low=True, high=1)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), "direction": torch.zeros_like(weights)}

    def mixture(self, server: ServerState) -> Tensor:
        """Return h = β c + (1 - β) G."""
        return self.beta * server.memory["variate"] + (1 - self.beta) * server.memory["direction"]

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"mixture": self.mixture(server)})

    def correction(self, local: LocalContext) -> Tensor:
        return local.received["mixture"] - self.beta * local.memory["variate"]

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        assert local.correction is not None
        return local.gradient(x).mul_(self.beta).add_(local.correction)

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        change = (local.per_step(upload["update"]) - local.received["mixture"]) / self.beta
        return {"variate": local.memory["variate"] + change}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        total = (uploads.sum_per_step() - len(uploads.clients) * self.mixture(server)) / self.beta
        moved = super().aggregate(server, uploads).with_memory(direction=uploads.per_step(uploads.mean_update))
        return self.add_changes(moved, uploads, variate=total)
