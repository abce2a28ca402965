"""Random partitions: by Dirichlet draws, by shards, by quantity, and IID."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedtaco.data.partitions.base import Indices, Labels, Partition
from fedtaco.errors import InvalidInput

FEWEST = 10
"""A Dirichlet draw that leaves a client with fewer samples is drawn again."""
MAX_DRAWS = 10_000


def iid(labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
    """Equal random parts."""
    return Partition(np.array_split(rng.permutation(len(labels)), clients))


def dirichlet(labels: Labels, clients: int, rng: np.random.Generator, phi: float) -> Partition:
    """Each class is spread over the clients by a draw from Dir(φ): NIID-Bench's form.

    A client that already holds its even share gets no more of later classes. All is drawn again
    until the smallest client has ten samples (or half the even share, if that is less); after
    10,000 draws the smallest are topped up from the largest.
    """
    even = len(labels) / clients
    fewest = min(FEWEST, int(even / 2))
    by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    counts = np.zeros((len(by_class), clients), int)
    for _ in range(MAX_DRAWS):
        counts = _draw_counts([len(samples) for samples in by_class], clients, even, phi, rng)
        if counts.sum(0).min() >= fewest:
            break
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for samples, row in zip(by_class, counts, strict=True):
        for client, piece in enumerate(np.split(rng.permutation(samples), np.cumsum(row)[:-1])):
            parts[client].append(piece)
    indices = [np.concatenate(pieces) for pieces in parts]
    moved = _top_up(indices, fewest, rng)
    notes = [f"No draw of {MAX_DRAWS} gave every client {fewest} samples; {moved} were moved from the largest."]
    return Partition(indices, notes=notes if moved else [])


def _draw_counts(
    sizes: list[int], clients: int, even: float, phi: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    counts = np.zeros((len(sizes), clients), int)
    held = np.zeros(clients)
    for row, size in enumerate(sizes):
        shares = _dirichlet_row(phi, clients, rng) * (held < even)
        if shares.sum() == 0:
            shares = (held < even).astype(float)
        cuts = (np.cumsum(shares / shares.sum()) * size).astype(int)
        cuts[-1] = size
        counts[row] = np.diff(cuts, prepend=0)
        held += counts[row]
    return counts


def _dirichlet_row(phi: float, count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return rng.dirichlet(np.full(count, phi))


def _top_up(indices: list[Indices], fewest: int, rng: np.random.Generator) -> int:
    """Move samples from the largest clients to those below ``fewest``; how many were moved."""
    moved = 0
    while min(map(len, indices)) < fewest:
        small, large = (
            min(range(len(indices)), key=lambda i: len(indices[i])),
            max(range(len(indices)), key=lambda i: len(indices[i])),
        )
        giver = rng.permutation(indices[large])
        wanted = fewest - len(indices[small])
        indices[small] = np.concatenate([indices[small], giver[:wanted]])
        indices[large] = giver[wanted:]
        moved += wanted
    return moved


def dirichlet_client(labels: Labels, clients: int, rng: np.random.Generator, phi: float) -> Partition:
    """Each client has its own class mixture from Dir(φ) and an equal number of samples: FedDyn's form.

    Clients take samples in turns, each by its own mixture among the classes that are left.
    """
    classes = np.unique(labels)
    left = [list(rng.permutation(np.flatnonzero(labels == label))) for label in classes]
    mixtures = rng.dirichlet(np.full(len(classes), phi), size=clients)
    parts: list[list[int]] = [[] for _ in range(clients)]
    turns = np.concatenate([rng.permutation(clients) for _ in range(-(-len(labels) // clients))])[: len(labels)]
    draws = rng.random(len(labels))
    available = np.array([len(samples) > 0 for samples in left], float)
    for client, draw in zip(turns, draws, strict=True):
        weights = mixtures[client] * available
        if weights.sum() == 0:
            weights = available
        chosen = int(np.searchsorted(np.cumsum(weights), draw * weights.sum(), side="right"))
        parts[client].append(left[chosen].pop())
        available[chosen] = len(left[chosen]) > 0
    return Partition([np.array(part, int) for part in parts])


def shards(labels: Labels, clients: int, rng: np.random.Generator, per_client: float) -> Partition:
    """Samples sorted by label, cut into equal shards, and so many shards given to each client."""
    count = int(per_client)
    if count != per_client or count < 1:
        raise InvalidInput(f"partition is shards:{per_client:g}; write a whole number of shards, as shards:2.")
    if clients * count > len(labels):
        raise InvalidInput(f"{clients * count} shards are more than the {len(labels)} samples; use fewer.")
    order = np.lexsort((rng.random(len(labels)), labels))
    pieces = np.array_split(order, clients * count)
    dealt = rng.permutation(clients * count).reshape(clients, count)
    return Partition([np.concatenate([pieces[piece] for piece in hand]) for hand in dealt])


def quantity(labels: Labels, clients: int, rng: np.random.Generator, phi: float) -> Partition:
    """The same mixture for all and sizes from Dir(φ), at least one sample each."""
    sizes = 1 + np.floor(rng.dirichlet(np.full(clients, phi)) * (len(labels) - clients)).astype(int)
    sizes[np.argmax(sizes)] += len(labels) - sizes.sum()
    return Partition(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))
