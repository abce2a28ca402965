"""Controls for TACO: methods with a global momentum that is the same for all clients.

TACO's correction is undamped (the gradient keeps its full weight), which acts like a larger step. These
methods separate the effect of tailoring from that of a larger effective learning rate.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedCM(Method):
    """Clients mix the last global direction G into their gradients.

        x <- x - local_lr * (a g + (1 - a) G)
        G <- sum of p_i U_i / (K local_lr)
        w <- w - sum of p_i U_i

    The momentum is damped: the weights of g and G sum to 1. FedAvg-M (Cheng et al., 2024) is this method with a = β.
    """

    name = "fedcm"
    summary = "mixes the last global direction into each gradient, damped"
    category = "momentum"
    reference = "Xu et al., FedCM: Federated Learning with Client-level Momentum, 2021"
    unequal_steps = "G divides by the weighted mean of the K_i; a client that takes more steps counts for more in it."
    cost = Cost(vector_ops=2, down=2)

    alpha: float = parameter(0.1, "a, weight of the client's own gradient", low=0, high=1)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"direction": torch.zeros_like(weights)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"direction": server.memory["direction"]})

    def correction(self, local: LocalContext) -> Tensor:
        return (1 - self.alpha) * local.received["direction"]

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        assert local.correction is not None
        return local.gradient(x).mul_(self.alpha).add_(local.correction)

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        moved = super().aggregate(server, uploads)
        return moved.with_memory(direction=uploads.per_step(uploads.mean_update))


@dataclass(frozen=True)
class FedAvgM(Method):
    """The server has a momentum m.

        m <- β m + sum of p_i U_i
        w <- w - m

    The momentum is undamped: the new update keeps its full weight.
    """

    name = "fedavgm"
    summary = "gives the server a momentum, undamped"
    category = "momentum"
    reference = (
        "Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019"
    )

    momentum: float = parameter(0.9, "β, fraction of the momentum that is kept in each round", low=0, high=1)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"momentum": torch.zeros_like(weights)}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        momentum = self.momentum * server.memory["momentum"] + uploads.relaxation * uploads.mean_update
        return server.moved(momentum).with_memory(momentum=momentum)
