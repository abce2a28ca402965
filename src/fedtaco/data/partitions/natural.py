"""Natural partitions: samples stay with the user (writer, role) they came from."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from fedtaco.data.partitions.base import Partition
from fedtaco.errors import InvalidInput


def natural(users: npt.NDArray[np.int32] | None, clients: int) -> Partition:
    """Users spread over the clients so that sizes are even; a user is never split."""
    if users is None:
        raise InvalidInput("This dataset does not say whose its samples are, so it has no natural partition.")
    names, counts = np.unique(users, return_counts=True)
    if clients > len(names):
        raise InvalidInput(f"clients is {clients}, more than the {len(names)} users in the data.")
    heap = [(0, client) for client in range(clients)]
    home = np.empty(int(names.max()) + 1, int)
    for user in np.argsort(-counts, kind="stable"):
        size, client = heapq.heappop(heap)
        home[names[user]] = client
        heapq.heappush(heap, (size + int(counts[user]), client))
    client_of = home[users]
    return Partition([np.flatnonzero(client_of == client) for client in range(clients)])
