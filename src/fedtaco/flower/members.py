"""Which node is which client: a number for each node, given when it is first seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedtaco.records import Arrays


class Members:
    """The nodes of a run, and the last round in which each one's answer was used."""

    def __init__(self, places: int, nodes: Sequence[int] = (), answered: Sequence[int] = ()) -> None:
        self.places, self.nodes = places, list(nodes)
        self.answered = [*answered, *[0] * (places - len(answered))]

    def admit(self, connected: Iterable[int]) -> list[int]:
        """Give a number to each new node while there are places; the nodes for which there is none."""
        new = sorted(set(connected) - set(self.nodes))
        free = self.places - len(self.nodes)
        self.nodes += new[:free]
        return new[free:]

    def here(self, connected: Iterable[int]) -> Tensor:
        """Which of the clients are connected."""
        present = set(connected)
        mask = torch.zeros(self.places, dtype=torch.bool)
        mask[: len(self.nodes)] = torch.tensor([node in present for node in self.nodes], dtype=torch.bool)
        return mask

    def number(self, node: int) -> int | None:
        return self.nodes.index(node) if node in self.nodes else None

    def name(self, client: int) -> str:
        return f"node {self.nodes[client]} (client {client})"

    def stored(self) -> Arrays:
        return {
            "flower/nodes": np.array(self.nodes, dtype=np.uint64),
            "flower/answered": np.array(self.answered, dtype=np.int64),
        }

    @classmethod
    def restored(cls, places: int, stored: Arrays) -> Members:
        return cls(places, stored["flower/nodes"].tolist(), stored["flower/answered"].tolist())
