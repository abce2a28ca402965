"""Which node is which client: each node gets a client number when it is first seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedtaco.records import Arrays


class NodeRegistry:
    """The nodes of a run, and the last round in which each one's reply was used (0 for none)."""

    def __init__(self, places: int, nodes: Sequence[int] = (), last_used: Sequence[int] = ()) -> None:
        self.places, self.nodes = places, list(nodes)
        self.last_used = [*last_used, *[0] * (places - len(last_used))]

    def admit(self, connected: Iterable[int]) -> list[int]:
        """Give a number to each new node while there are places; return the nodes without one."""
        new = sorted(set(connected) - set(self.nodes))
        free = self.places - len(self.nodes)
        self.nodes += new[:free]
        return new[free:]

    def connected_mask(self, connected: Iterable[int]) -> Tensor:
        """Return a mask of the clients that are connected."""
        present = set(connected)
        mask = torch.zeros(self.places, dtype=torch.bool)
        mask[: len(self.nodes)] = torch.tensor([node in present for node in self.nodes], dtype=torch.bool)
        return mask

    def client_of(self, node: int) -> int | None:
        """Return the client number of a node, or ``None``."""
        return self.nodes.index(node) if node in self.nodes else None

    def name(self, client: int) -> str:
        """Name a client for log lines."""
        return f"node {self.nodes[client]} (client {client})"

    def to_arrays(self) -> Arrays:
        """Return the registry as arrays of a checkpoint."""
        return {
            "flower/nodes": np.array(self.nodes, dtype=np.uint64),
            "flower/last_used": np.array(self.last_used, dtype=np.int64),
        }

    @classmethod
    def from_arrays(cls, places: int, stored: Arrays) -> NodeRegistry:
        """Return the registry in a checkpoint, or a new one if there is none."""
        if not stored:
            return cls(places)
        return cls(places, stored["flower/nodes"].tolist(), stored["flower/last_used"].tolist())
