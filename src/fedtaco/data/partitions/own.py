"""Partitions by users' own functions."""

import numpy as np

from fedtaco.data.partitions.base import Labels, Partition
from fedtaco.errors import InvalidInput
from fedtaco.registry import call_own, import_object


def own_partition(spec: str, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
    """Call a user's function ``(labels, clients, rng) -> list of index arrays``.

    Raises
    ------
    InvalidInput
        If it fails, or does not return one array of indices per client, each index at most once.
    """
    returned = call_own(spec, import_object(spec, "partition", "function"), labels, clients, rng)
    try:
        parts = [np.asarray(part) for part in returned]
        indices = np.concatenate(parts) if parts else np.empty(0)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{spec} must return one array of indices per client: {error}.") from error
    if len(parts) != clients or any(part.ndim != 1 for part in parts):
        raise InvalidInput(f"{spec} returned {len(parts)} parts for {clients} clients; it must return one array each.")
    if indices.dtype.kind not in "iu" or indices.min() < 0 or indices.max() >= len(labels):
        raise InvalidInput(f"{spec} must return indices of samples, whole numbers from 0 to {len(labels) - 1}.")
    if len(np.unique(indices)) < len(indices):
        raise InvalidInput(f"{spec} gives a sample to two clients; each sample may belong to one.")
    return Partition([part.astype(np.int64) for part in parts])
