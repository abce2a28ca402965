"""Coefficients tailored to each client: the server stores the α_i of Eq. 7 and sends each client its own."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, Expulsion, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants

TACO_PAPER = "Liu et al., TACO: Tackling Over-correction in Federated Learning with Tailored Adaptive Correction"
LONGER_UPLOADS = "A client that takes more steps has a longer upload and thus a smaller α_i."
INITIAL_ALPHA = 0.1
"""α_i before a client's first upload (paper, Algorithm 2)."""


@dataclass(frozen=True)
class Tailored(Method):
    """A mixin for methods whose clients receive a coefficient α_i, as ``local.received["alpha"]``.

    α_i is computed from the method's own uploads; a client that does not take part in a round keeps its last α_i.
    """

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        alpha = torch.full((constants.clients,), INITIAL_ALPHA, dtype=torch.float64, device=weights.device)
        return {**super().server_memory(weights, constants), "alpha": alpha}

    def cohort_alpha(self, server: ServerState, cohort: Tensor) -> Tensor:
        """Return the coefficients that the clients of the cohort receive."""
        return server.memory["alpha"][cohort]

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        message = super().broadcast(server, cohort)
        alpha = self.cohort_alpha(server, cohort).to(server.weights.dtype)
        return replace(message, scalars={**message.scalars, "alpha": alpha})

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        alpha = server.memory["alpha"].clone()
        alpha[uploads.clients] = uploads.geometry.alpha
        return super().aggregate(server, uploads).with_memory(alpha=alpha)

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Set the coefficients of expelled clients to NaN."""
        alpha = server.memory["alpha"].index_fill(0, expulsion.clients, torch.nan)
        return super().remove_clients(server, expulsion).with_memory(alpha=alpha)
