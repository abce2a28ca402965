"""FedDyn (Acar et al., 2021, Algorithm 1): a dual variable per client aligns local optima with the global one.

The paper's dual of client i is a e_i and its server state is h = a E, where e_i is the sum of the client's updates and
E the mean of the e_i over all clients; stored without a, they remain right if a changes or clients are absent.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.methods.averaged_memory import AveragedMemory
from fedtaco.methods.base import Broadcast, LocalContext, NamedTensors, ServerState, Uploads
from fedtaco.methods.cost import Cost
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedDyn(AveragedMemory):
    """Clients add a linear term, their dual, and a pull towards the point y where they start.

        y    = w - E
        x   <- x - local_lr * (g - a e_i + a (x - y)), from x = y
        e_i <- e_i + U_i
        E   <- E + (sum of U_i over the cohort) / N
        w   <- y - mean U_i, the mean of the client models

    Curves show w, because the authors' curves show the mean of the client models, too; the method returns their
    server model, y. All means are unweighted, whatever the run's weighting, because the duals balance the clients'
    unweighted gradients. With a = 0 the method is not FedAvg, because E remains.
    """

    name = "feddyn"
    summary = "adds a dual variable and a pull to each step, and extrapolates by the mean of all updates"
    category = "correction"
    reference = "Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021"
    unequal_steps = "No K appears: each client may take any number of steps towards its own optimum."
    cost = Cost(vector_ops=3, memory=1)
    averaged: ClassVar[tuple[str, ...]] = ("displacement",)

    a: float = parameter(0.01, "a, weight of the pull and of the dual variable", low=0)

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(self.output(server))

    def correction(self, local: LocalContext) -> Tensor:
        return -self.a * local.memory["displacement"]

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        return super().direction(x, local).add_(x - local.start, alpha=self.a)

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        return {"displacement": local.memory["displacement"] + upload["update"]}

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return torch.full_like(uploads.shares, 1 / len(uploads.shares))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        moved = super().aggregate(replace(server, weights=self.output(server)), uploads)
        return self.add_changes(moved, uploads, displacement=uploads.vectors.total())

    def output(self, server: ServerState) -> Tensor:
        """Return y = w - E, the point where the clients of the next round start."""
        return server.weights - server.memory["displacement"]
