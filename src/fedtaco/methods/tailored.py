"""Coefficients tailored to each client: α_i of Eq. 7, kept by the server and sent to its client."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.methods.base import Broadcast, Departure, Memory, Method, Server, Setting, Uploads

INITIAL_ALPHA = 0.1
"""α_i before a client's first upload (paper, Algorithm 2)."""


@dataclass(frozen=True)
class Tailored(Method):
    """Adds to any method the coefficients α_i as ``local.received["alpha"]``.

    α_i is computed from the method's own uploads; a client that sat out a round keeps its last one.
    """

    def server_memory(self, weights: Tensor, setting: Setting) -> Memory:
        alpha = torch.full((setting.clients,), INITIAL_ALPHA, dtype=torch.float64, device=weights.device)
        return {**super().server_memory(weights, setting), "alpha": alpha}

    def cohort_alpha(self, server: Server, cohort: Tensor) -> Tensor:
        return server.memory["alpha"][cohort]

    def broadcast(self, server: Server, cohort: Tensor) -> Broadcast:
        message = super().broadcast(server, cohort)
        alpha = self.cohort_alpha(server, cohort).to(server.weights.dtype)
        return replace(message, scalars={**message.scalars, "alpha": alpha})

    def aggregate(self, server: Server, uploads: Uploads) -> Server:
        alpha = server.memory["alpha"].clone()
        alpha[uploads.clients] = uploads.geometry.alpha
        return super().aggregate(server, uploads).remembering(alpha=alpha)

    def without(self, server: Server, departure: Departure) -> Server:
        """An expelled client has no coefficient any more: NaN."""
        alpha = server.memory["alpha"].index_fill(0, departure.clients, torch.nan)
        return super().without(server, departure).remembering(alpha=alpha)
