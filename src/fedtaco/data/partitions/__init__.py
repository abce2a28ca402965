"""Partitions: which client holds which training sample. Each sample goes to exactly one client."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedtaco.data.partitions.base import Labels, Partition
from fedtaco.data.partitions.flower import flower
from fedtaco.data.partitions.groups import label_groups
from fedtaco.data.partitions.natural import natural
from fedtaco.data.partitions.skew import dirichlet, dirichlet_client, iid, quantity, shards
from fedtaco.errors import InvalidInput, unknown
from fedtaco.randomness import generator

PLAIN = {"groups": label_groups, "iid": iid}
WITH_NUMBER: dict[str, Callable[[Labels, int, np.random.Generator, float], Partition]] = {
    "dirichlet": dirichlet,
    "dirichlet-client": dirichlet_client,
    "shards": shards,
    "quantity": quantity,
}
PARTITIONS = ("groups", "dirichlet:0.5", "dirichlet-client:0.5", "shards:2", "quantity:0.5", "iid", "natural", "flwr:…")
"""How partitions are written."""


def check_partition(spec: str) -> None:
    """Refuse what is not written like a partition."""
    name, colon, option = spec.partition(":")
    if name in WITH_NUMBER:
        try:
            fits = float(option) > 0 and float(option) < np.inf
        except ValueError:
            fits = False
        if not fits:
            raise InvalidInput(f"partition is '{spec}'; {name} takes a number above 0, as {name}:{_example(name)}.")
    elif name == "flwr" and option:
        return
    elif name not in (*PLAIN, "natural") or colon:
        raise unknown("partition", spec, PARTITIONS)


def partition(
    spec: str, labels: Labels, clients: int, seed: int, users: npt.NDArray[np.int32] | None = None
) -> Partition:
    """Split the samples with these labels over clients, as ``spec`` says.

    >>> [len(part) for part in partition("iid", np.zeros(10, int), clients=3, seed=0).indices]
    [4, 3, 3]
    """
    check_partition(spec)
    if not isinstance(clients, int) or clients < 1:
        raise InvalidInput(f"clients is {clients}; it must be a whole number of at least 1.")
    if seed < 0:
        raise InvalidInput(f"seed is {seed}; it must be at least 0.")
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInput(
            f"Labels are {labels.dtype} of shape {labels.shape}; a partition needs one class number each."
        )
    if clients > len(labels):
        raise InvalidInput(f"clients is {clients}, more than the {len(labels)} training samples.")
    name, _, option = spec.partition(":")
    rng = generator(seed, "partition")
    if name == "natural":
        result = natural(users, clients)
    elif name == "flwr":
        result = flower(labels, clients, seed, option)
    elif name in PLAIN:
        result = PLAIN[name](labels, clients, rng)
    else:
        result = WITH_NUMBER[name](labels, clients, rng, float(option))
    for client, indices in enumerate(result.indices):
        if len(indices) == 0:
            raise InvalidInput(
                f"The partition {spec} leaves client {client} of {clients} without samples; use fewer clients."
            )
    return result


def _example(name: str) -> str:
    return next(spec.partition(":")[2] for spec in PARTITIONS if spec.startswith(f"{name}:"))


__all__ = ["PARTITIONS", "Labels", "Partition", "check_partition", "partition"]
