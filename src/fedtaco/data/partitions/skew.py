"""Random partitions: Dirichlet label skew, shards, quantity skew, feature noise, and IID."""

import numpy as np
import numpy.typing as npt

from fedtaco.data.partitions.base import Indices, Labels, Partition
from fedtaco.errors import InvalidInput
from fedtaco.records.formatting import pluralize

MIN_SAMPLES = 10
"""A Dirichlet draw that leaves a client with fewer samples is repeated."""
MAX_DRAWS = 10_000
"""Number of Dirichlet draws after which samples are moved to the smallest clients instead."""
MAX_NOISE = 1_000_000
"""Maximum standard deviation of noise."""


def iid(labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
    """Split the samples at random into equal parts."""
    return Partition(np.array_split(rng.permutation(len(labels)), clients))


def dirichlet(labels: Labels, clients: int, rng: np.random.Generator, phi: float) -> Partition:
    """Distribute each class over the clients by a draw from Dir(φ), as in NIID-Bench.

    A client that already holds its even share of samples gets none of the remaining classes. The draw is
    repeated until every client has ten samples (or half the even share, if that is less); after 10,000 draws,
    samples are moved from the largest clients to the smallest.
    """
    minimum = min(MIN_SAMPLES, int(len(labels) / clients / 2))
    by_class = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    sizes = [len(samples) for samples in by_class]
    for _ in range(MAX_DRAWS):
        counts = _draw_counts(sizes, clients, phi, rng)
        if counts.sum(0).min() >= minimum:
            break
    cuts = np.cumsum(counts, axis=1)[:, :-1]
    pieces = [np.split(rng.permutation(samples), row) for samples, row in zip(by_class, cuts, strict=True)]
    indices = [np.concatenate(own) for own in zip(*pieces, strict=True)]
    moved = _top_up(indices, minimum, rng)
    few, many = pluralize(minimum, "sample"), f"{pluralize(moved, 'sample')} {'was' if moved == 1 else 'were'}"
    notes = [f"None of {MAX_DRAWS} draws gave all clients {few}; {many} moved from the largest."]
    return Partition(indices, notes=notes if moved else [])


def _draw_counts(sizes: list[int], clients: int, phi: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw the number of samples of each class that each client gets, (classes, clients)."""
    counts = np.zeros((len(sizes), clients), int)
    held, even = np.zeros(clients), sum(sizes) / clients
    for row, size in enumerate(sizes):
        shares = rng.dirichlet(np.full(clients, phi)) * (held < even)
        if shares.sum() == 0:
            shares = (held < even).astype(float)
        cuts = (np.cumsum(shares / shares.sum()) * size).astype(int)
        cuts[-1] = size
        counts[row] = np.diff(cuts, prepend=0)
        held += counts[row]
    return counts


def _top_up(indices: list[Indices], minimum: int, rng: np.random.Generator) -> int:
    """Move samples from the largest clients to those with fewer than ``minimum``; return how many were moved."""
    moved = 0
    while min(map(len, indices)) < minimum:
        sizes = [len(part) for part in indices]
        small, large = sizes.index(min(sizes)), sizes.index(max(sizes))
        missing = minimum - sizes[small]
        available = rng.permutation(indices[large])
        indices[small] = np.concatenate([indices[small], available[:missing]])
        indices[large] = available[missing:]
        moved += missing
    return moved


def dirichlet_client(labels: Labels, clients: int, rng: np.random.Generator, phi: float) -> Partition:
    """Draw a class mixture from Dir(φ) for each client and give all clients equally many samples, as in FedDyn.

    Clients take turns to draw a sample, each by its own mixture of the classes that still have samples.
    """
    classes = np.unique(labels)
    remaining = [list(rng.permutation(np.flatnonzero(labels == label))) for label in classes]
    mixtures = rng.dirichlet(np.full(len(classes), phi), size=clients)
    parts: list[list[int]] = [[] for _ in range(clients)]
    turns = np.concatenate([rng.permutation(clients) for _ in range(-(-len(labels) // clients))])[: len(labels)]
    draws = rng.random(len(labels))
    available = np.array([len(samples) > 0 for samples in remaining], float)
    for client, draw in zip(turns, draws, strict=True):
        weights = mixtures[client] * available
        if weights.sum() == 0:
            weights = available
        chosen = int(np.searchsorted(np.cumsum(weights), draw * weights.sum(), side="right"))
        parts[client].append(remaining[chosen].pop())
        available[chosen] = len(remaining[chosen]) > 0
    return Partition([np.array(part, int) for part in parts])


def shards(labels: Labels, clients: int, rng: np.random.Generator, per_client: float) -> Partition:
    """Sort the samples by label, cut them into equal shards and give each client ``per_client`` of them at random."""
    count = int(per_client)
    if count != per_client or count < 1:
        raise InvalidInput(f"partition is shards:{per_client:g}; use a whole number of shards, as in shards:2.")
    if clients * count > len(labels):
        raise InvalidInput(f"{clients * count} shards are more than the {len(labels)} samples; use fewer.")
    order = np.lexsort((rng.random(len(labels)), labels))
    pieces = np.array_split(order, clients * count)
    assigned = rng.permutation(clients * count).reshape(clients, count)
    return Partition([np.concatenate([pieces[piece] for piece in own]) for own in assigned])


def quantity(labels: Labels, clients: int, rng: np.random.Generator, phi: float) -> Partition:
    """Split the samples at random into parts whose sizes follow a draw from Dir(φ), at least one sample each."""
    sizes = 1 + np.floor(rng.dirichlet(np.full(clients, phi)) * (len(labels) - clients)).astype(int)
    sizes[np.argmax(sizes)] += len(labels) - sizes.sum()
    return Partition(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))


def noise(labels: Labels, clients: int, rng: np.random.Generator, sigma: float) -> Partition:
    """Split the samples as ``iid`` does, and add Gaussian noise to the inputs of all clients but the first.

    The standard deviation is σ·i/(N - 1) for client i of N, as in NIID-Bench, from 0 to σ.
    """
    if sigma > MAX_NOISE:
        raise InvalidInput(f"partition is noise:{sigma:g}; use a standard deviation of at most {MAX_NOISE:,}.")
    deviations = sigma * np.arange(clients) / max(1, clients - 1)
    return Partition(iid(labels, clients, rng).indices, noise=deviations.tolist())
