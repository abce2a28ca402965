"""Mime and MimeLite (Karimireddy et al., 2021): clients use the server's momentum, which is fixed during a round."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FullGradientMomentum(Method):
    """What Mime and MimeLite share: a momentum m <- (1 - β) c + β m, where c is the cohort's mean full gradient."""

    category = "momentum"
    reference = "Karimireddy et al., Breaking the Centralized Barrier for Cross-Device Federated Learning, NeurIPS 2021"
    unequal_steps = "m does not depend on K; in w, a client that takes more steps counts for more."

    beta: float = parameter(0.9, "β, weight of the momentum", low=0, high=1)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"momentum": torch.zeros_like(weights)}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"momentum": server.memory["momentum"]})

    def with_new_momentum(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return the state with the momentum that includes the full gradients of these uploads."""
        momentum = (1 - self.beta) * uploads.average("gradient") + self.beta * server.memory["momentum"]
        return server.with_memory(momentum=momentum)


@dataclass(frozen=True)
class MimeLite(FullGradientMomentum):
    """Clients mix the server's momentum m into their gradients; m is made of gradients over all samples.

        x <- x - local_lr * ((1 - β) g + β m)
        c  = sum of p_i times the gradient over all samples of client i, at w
        m <- (1 - β) c + β m
        w <- w - sum of p_i U_i

    The momentum is damped: the weights of g and m sum to 1.
    """

    name = "mime-lite"
    summary = "mixes into each gradient a momentum made of full gradients, fixed during a round"
    cost = Cost(full_passes=1, vector_ops=2, down=2, up=2)

    def correction(self, local: LocalContext) -> Tensor:
        return self.beta * local.received["momentum"]

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        assert local.correction is not None
        return local.gradient(x).mul_(1 - self.beta).add_(local.correction)

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        return {"update": update, "gradient": local.full_gradient(local.start)}, local.memory

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        return self.with_new_momentum(super().aggregate(server, uploads), uploads)


@dataclass(frozen=True)
class Mime(FullGradientMomentum):
    """MimeLite whose gradients are corrected by the gradients at w on the same batch.

        c  = sum of p_i times the gradient over all samples of client i, at w
        x <- x - local_lr * ((1 - β) (g(x) - g(w) + c) + β m)
        m <- (1 - β) c + β m
        w <- w - sum of p_i U_i

    The clients first send their gradients over all samples, from which the server computes c. In the second phase it
    sends (1 - β) c + β m, which is also the new m, as one vector.
    """

    name = "mime"
    summary = "corrects each gradient by the cohort's full gradient, and mixes in a momentum made of these"
    cost = Cost(gradients=2, full_passes=1, vector_ops=3, down=3, up=2)
    surveys = True

    def survey(self, local: LocalContext) -> NamedTensors:
        return {"gradient": local.full_gradient(local.start)}

    def absorb(self, server: ServerState, uploads: Uploads) -> ServerState:
        return self.with_new_momentum(server, uploads)

    def correction(self, local: LocalContext) -> Tensor:
        return local.received["momentum"]

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        assert local.correction is not None
        change = local.gradient(x).sub_(local.gradient(local.start))
        return change.mul_(1 - self.beta).add_(local.correction)
