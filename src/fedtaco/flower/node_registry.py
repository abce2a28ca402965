"""The client numbers of nodes: each node gets one when it first connects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.methods import NamedTensors


class NodeRegistry:
    """The nodes of a run, in the order of their client numbers.

    Parameters
    ----------
    capacity
        Number of clients in the run.
    nodes
        The nodes that already have a client number.
    last_used
        For each client, the last round whose reply was used; 0 if there is none.
    """

    def __init__(self, capacity: int, nodes: Sequence[int] = (), last_used: Sequence[int] = ()) -> None:
        self.capacity, self.nodes = capacity, list(nodes)
        self.last_used = [*last_used, *[0] * (capacity - len(last_used))]

    def admit(self, connected: Iterable[int]) -> list[int]:
        """Give client numbers to new nodes as long as there are free ones; return the nodes that got none."""
        new = sorted(set(connected) - set(self.nodes))
        free = self.capacity - len(self.nodes)
        self.nodes += new[:free]
        return new[free:]

    def connected_mask(self, connected: Iterable[int]) -> Tensor:
        """Return a mask of the clients whose nodes are in ``connected``."""
        present = set(connected)
        mask = torch.zeros(self.capacity, dtype=torch.bool)
        mask[: len(self.nodes)] = torch.tensor([node in present for node in self.nodes], dtype=torch.bool)
        return mask

    def client_of(self, node: int) -> int | None:
        """Return the client number of a node, or ``None`` if it has none."""
        return self.nodes.index(node) if node in self.nodes else None

    def name(self, client: int) -> str:
        """Return how log lines name a client."""
        return f"node {self.nodes[client]} (client {client})"

    def to_tensors(self) -> NamedTensors:
        """Return the registry as plain data, which a checkpoint stores."""
        return {
            "ids": torch.from_numpy(np.array(self.nodes, dtype=np.uint64)),
            "last_used": torch.tensor(self.last_used, dtype=torch.int64),
        }

    @classmethod
    def from_tensors(cls, capacity: int, stored: NamedTensors) -> NodeRegistry:
        """Return the registry that :meth:`to_tensors` stored, or a new one if there is none.

        Raises
        ------
        InvalidInput
            If the tensors are not those of a registry.
        """
        if not stored:
            return cls(capacity)
        none = torch.empty(0)
        nodes, last_used = stored.get("ids", none), stored.get("last_used", none)
        is_valid = nodes.ndim == 1 and len(nodes) <= capacity and last_used.shape == (capacity,)
        is_valid = is_valid and nodes.dtype == torch.uint64 and len(set(nodes.tolist())) == len(nodes)
        if not (is_valid and last_used.dtype == torch.int64 and bool((last_used >= 0).all())):
            raise InvalidInput("The checkpoint does not say which node is which client; use a new checkpoint folder.")
        return cls(capacity, nodes.tolist(), last_used.tolist())
