"""STEM (Khanduri et al., 2021) as the paper runs it: variance-reduced momentum on clients and server.

The paper sends no momentum to clients, so each round restarts with v_0 = g_0. Its aggregation adds
the gradient v_i to the displacement U_i. In displacement units that is local_lr * v_i, one more step
along the momentum, which is the default here.
"""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.base import Cost, LocalContext, Method, NamedTensors, ServerState, Uploads
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class Stem(Method):
    """Steps descend along v_k = g(x_k) + (1 - α_t) (v_{k-1} - g(x_{k-1})), both gradients on the batch of step k."""

    name = "stem"
    summary = "descends along a variance-reduced momentum; the server takes one more step along it"
    cost = Cost(gradients=2, gradients_saved=1, vector_ops=4, up=2)

    alpha: float = parameter(0.2, "α_t, weight of the newest gradient in the momentum", low=0, high=1)
    server_momentum: str = parameter(
        "eta",
        "what the server adds to U_i: local_lr * v_i (eta), v_i as printed in the paper (literal), or nothing (off)",
        choices=("eta", "literal", "off"),
    )

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        momentum = local.gradient(x)
        if local.step > 0:
            stale = local.carry["momentum"] - local.gradient(local.carry["point"])
            momentum.add_(stale, alpha=1 - self.alpha)
        local.carry.update(momentum=momentum, point=x.clone())
        return momentum

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        return {"update": update, "momentum": local.carry["momentum"]}, local.memory

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        local_lr = uploads.constants.local_lr
        scale = {"eta": local_lr, "literal": float(local_lr > 0), "off": 0.0}[self.server_momentum]
        extra_step = scale * uploads.average("momentum")
        return server.moved(uploads.relaxation * (uploads.mean_update + extra_step))
