"""FedACG (Kim et al., 2024): clients start at a look-ahead point and are pulled towards it.

The TACO paper's formulas for FedACG contradict each other in the sign and scale of the momentum, so this
follows the original. The server sends only the vector y = w + λm; at λ = β = 0 the method is FedAvg.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedACG(Method):
    """Clients start ahead along the server's momentum m and are pulled towards that point y.

        y  = w + λ m
        x <- x - local_lr * (g + β (x - y)), from x = y
        m <- λ m - sum of p_i U_i
        w <- w + m

    At λ = β = 0 this is FedAvg.
    """

    name = "fedacg"
    summary = "starts clients ahead along the server's momentum and pulls them towards that point"
    category = "momentum"
    reference = "Kim et al., Communication-Efficient Federated Learning with Accelerated Client Gradient, CVPR 2024"
    cost = Cost(vector_ops=2)

    momentum: float = parameter(0.85, "λ, fraction of the momentum that is kept in each round", low=0, high=1)
    beta: float = parameter(0.001, "β, weight of the pull towards the starting point", low=0)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"momentum": torch.zeros_like(weights)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights + self.momentum * server.memory["momentum"])

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        return local.gradient(x).add_(x - local.start, alpha=self.beta)

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        momentum = self.momentum * server.memory["momentum"] - uploads.relaxation * uploads.mean_update
        return server.moved(-momentum).with_memory(momentum=momentum)
