"""Natural partitions: samples stay with the user (writer, role) they came from."""

import heapq

import numpy as np

from fedtaco.data.partitions.base import Partition, Users
from fedtaco.errors import InvalidInput


def natural(users: Users | None, clients: int) -> Partition:
    """Distribute whole users over the clients so that clients hold similar numbers of samples.

    Users are assigned in order of decreasing size, each to the client with the fewest samples so far.
    """
    if users is None:
        raise InvalidInput("The dataset does not record whose samples these are, so it has no natural partition.")
    _, user_of_sample, counts = np.unique(users, return_inverse=True, return_counts=True)
    if clients > len(counts):
        raise InvalidInput(f"clients is {clients}, more than the {len(counts)} users in the data.")
    heap = [(0, client) for client in range(clients)]
    client_of_user = np.empty(len(counts), int)
    for user in np.argsort(-counts, kind="stable"):
        size, client = heapq.heappop(heap)
        client_of_user[user] = client
        heapq.heappush(heap, (size + int(counts[user]), client))
    owners = client_of_user[user_of_sample]
    return Partition([np.flatnonzero(owners == client) for client in range(clients)])
