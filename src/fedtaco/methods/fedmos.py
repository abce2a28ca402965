"""FedMoS (Wang et al., 2023): momentum on clients and server, and a pull towards the global model.

The paper's local momentum is STORM, d_k = g(x_k) + (1 - a) (d_{k-1} - g(x_{k-1})) with both gradients on the batch of
step k. The released code takes the gradient of the last step as it was, on the batch of that step. Then d_k - g_k
shrinks by 1 - a in every step, and a matters only because the second step finds 0 as the last gradient, in the public
copy of that code which docs/baselines.md names: d_k = g_k + (1 - a)^k g_0 for k > 0. The adaptive selection of clients
is not included.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.stem import variance_reduced
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedMoS(Method):
    """Clients descend along a momentum d and are pulled towards w; the server has a momentum u.

        d <- g + (1 - a) (d - last g), starting at g
        x <- x - local_lr * d - μ (x - w)
        u <- β u + sum of p_i U_i
        w <- w - u

    The pull is not multiplied by the local rate. ``last g`` is that of the last step with its own batch, and 0 in the
    second step (``stored``, the released code), or computed anew with the batch of this step (``same-batch``, the
    paper), which takes a second gradient. The server forgets the u of the first round, as in the released code.
    """

    name = "fedmos"
    summary = "gives clients and server a momentum and pulls each step towards the global model"
    category = "momentum"
    reference = (
        "Wang et al., FedMoS: Taming Client Drift in Federated Learning with Double Momentum and Adaptive Selection, "
        "INFOCOM 2023"
    )
    cost = Cost(vector_ops=4)

    a: float = parameter(0.2, "a, weight of the newest gradient in the clients' momentum", low=0, high=1)
    mu: float = parameter(1e-4, "μ, fraction of the distance to the global model that each step returns", low=0)
    beta: float = parameter(0.5, "β, fraction of the server's momentum that is kept in each round", low=0, high=1)
    last_gradient: str = parameter(
        "stored",
        "the last gradient: as it was in the last step (stored), or on the batch of this step (same-batch)",
        choices=("stored", "same-batch"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.last_gradient == "same-batch":
            object.__setattr__(self, "cost", Cost(gradients=2, gradients_saved=1, vector_ops=5))

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"momentum": torch.zeros_like(weights), "rounds": weights.new_zeros(1)}

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        momentum = variance_reduced(x, local, self.a) if self.last_gradient == "same-batch" else self._stored(x, local)
        local_lr = local.constants.local_lr
        return momentum.add(x - local.start, alpha=self.mu / local_lr if local_lr else 0.0)

    def _stored(self, x: Tensor, local: LocalContext) -> Tensor:
        gradient = local.gradient(x)
        if local.step == 0:
            local.carry.update(momentum=gradient, gradient=torch.zeros_like(gradient))
            return gradient
        stale = local.carry["momentum"] - local.carry["gradient"]
        local.carry.update(momentum=gradient.add(stale, alpha=1 - self.a), gradient=gradient)
        return local.carry["momentum"]

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        rounds = server.memory["rounds"]
        momentum = self.beta * server.memory["momentum"] + uploads.relaxation * uploads.mean_update
        kept = momentum if rounds > 0 else torch.zeros_like(momentum)
        return server.moved(momentum).with_memory(momentum=kept, rounds=rounds + 1)
