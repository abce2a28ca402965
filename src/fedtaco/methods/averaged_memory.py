"""Vectors that every client keeps and whose mean over all clients the server keeps, such as Scaffold's variates."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.methods.base import Expulsion, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants


@dataclass(frozen=True)
class AveragedMemory(Method):
    """A mixin for methods with such vectors; ``averaged`` names them.

    All vectors start at zero. A client that does not take part in a round keeps its own, so the changes of a cohort
    enter the server's mean divided by the number of *all* clients, N.
    """

    averaged: ClassVar[tuple[str, ...]]

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), **self._zeros(weights)}

    def client_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().client_memory(weights, constants), **self._zeros(weights)}

    def add_changes(self, server: ServerState, uploads: Uploads, **totals: Tensor) -> ServerState:
        """Return the state after the vectors of the cohort changed; ``totals`` are the sums of their changes."""
        changed = {}
        for name, total in totals.items():
            mean = server.memory[name]
            changed[name] = mean + (total / uploads.constants.clients).to(mean.dtype)
        return server.with_memory(**changed)

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Make the server's vectors the means over the remaining clients."""
        server = super().remove_clients(server, expulsion)
        left = expulsion.members - len(expulsion.clients)
        if left == 0:
            return server
        return server.with_memory(**{name: self._mean_without(server, expulsion, name) for name in self.averaged})

    def _mean_without(self, server: ServerState, expulsion: Expulsion, name: str) -> Tensor:
        total = expulsion.members * server.memory[name]
        for memory in expulsion.memories.values():
            total = total - memory[name]
        return total / (expulsion.members - len(expulsion.clients))

    def _zeros(self, weights: Tensor) -> NamedTensors:
        return {name: torch.zeros_like(weights) for name in self.averaged}
