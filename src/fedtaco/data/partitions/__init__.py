"""Partitions: the assignment of training samples to clients, each sample to exactly one client."""

from collections.abc import Callable

import numpy as np

from fedtaco.data.partitions.base import Indices, Labels, Partition, Users, label_counts
from fedtaco.data.partitions.flower_datasets import flower
from fedtaco.data.partitions.groups import label_groups
from fedtaco.data.partitions.natural import natural
from fedtaco.data.partitions.own import own_partition
from fedtaco.data.partitions.skew import dirichlet, dirichlet_client, iid, noise, quantity, shards
from fedtaco.errors import InvalidInput, unknown
from fedtaco.parameters import plain_number
from fedtaco.printable import quoted
from fedtaco.randomness import generator
from fedtaco.registry import import_object, names_code

PARTITIONS: dict[str, Callable[..., Partition]] = {
    "groups": label_groups,
    "dirichlet:0.5": dirichlet,
    "dirichlet-client:0.5": dirichlet_client,
    "shards:2": shards,
    "quantity:0.5": quantity,
    "noise:0.3": noise,
    "iid": iid,
    "natural": natural,
    "flwr:…": flower,
}
"""The functions that make partitions, by examples of how these are written."""
EXAMPLES = {example.partition(":")[0]: example for example in PARTITIONS}
"""The example of each partition by its name."""
WITHOUT_LABELS = ("iid", "quantity", "noise", "natural")
"""Partitions that do not depend on class labels."""


def is_own_partition(spec: str) -> bool:
    """Return whether a text names a user's own function, as ``package.module:function``, and not a partition."""
    return names_code(spec, EXAMPLES)


def check_partition(spec: str) -> None:
    """Check that a partition is spelled correctly.

    Parameters
    ----------
    spec : str
        Partition, such as ``groups`` or ``dirichlet:0.5``, or a user's own function, which is imported.

    Raises
    ------
    InvalidInput
        If there is no such partition, or its number is missing or out of range.

    Examples
    --------
    >>> check_partition("dirichlet:0.5")
    """
    if not isinstance(spec, str):
        raise InvalidInput(
            f"The partition is {quoted(spec)}; it must be text, such as 'iid', or name your own function as "
            "'package.module:function'."
        )
    name, _, option = spec.partition(":")
    if is_own_partition(spec):
        import_object(spec, "partition", "function")
    elif name != "flwr" and ":" in EXAMPLES.get(name, ""):
        try:
            in_range = 0 < float(option) < np.inf
        except ValueError:
            in_range = False
        if not in_range:
            raise InvalidInput(f"partition is '{spec}'; {name} takes a number above 0, as in {EXAMPLES[name]}.")
    elif spec not in PARTITIONS and not (name == "flwr" and option):
        raise unknown("partition", spec, PARTITIONS)


def needs_labels(spec: str) -> bool:
    """Return whether a partition depends on class labels.

    >>> needs_labels("dirichlet:0.5"), needs_labels("iid")
    (True, False)
    """
    return spec.partition(":")[0] not in WITHOUT_LABELS


def partition(spec: str, labels: Labels, clients: int, seed: int, users: Users | None = None) -> Partition:
    """Assign samples to clients.

    Parameters
    ----------
    spec : str
        Partition: ``groups``, ``dirichlet:0.5``, ``dirichlet-client:0.5``, ``shards:2``, ``quantity:0.5``,
        ``noise:0.3``, ``iid``, ``natural``, ``flwr:`` and a class of ``flwr_datasets.partitioner``, or a user's own
        function as ``package.module:function``, which takes the labels, the number of clients and a numpy generator,
        and returns the indices of each client's samples.
    labels : array
        Class label of each sample; ``iid``, ``quantity``, ``noise`` and ``natural`` use only its length.
    clients : int
        Number of clients.
    seed : int
        Seed of the partition.
    users : array of int, optional
        User to whom each sample belongs; needed by ``natural``.

    Returns
    -------
    Partition
        The indices of each client's samples.

    Raises
    ------
    InvalidInput
        If an argument is invalid or a client would be left without samples.

    Examples
    --------
    >>> [len(part) for part in partition("iid", np.zeros(10, int), clients=3, seed=0).indices]
    [4, 3, 3]
    """
    check_partition(spec)
    clients = plain_number(clients)
    if not isinstance(clients, int) or clients < 1:
        raise InvalidInput(f"clients is {clients}; it must be a whole number of at least 1.")
    if seed < 0:
        raise InvalidInput(f"seed is {seed}; it must be at least 0.")
    if needs_labels(spec) and (labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer)):
        raise InvalidInput(
            f"The partition {spec} needs one integer label per sample, but targets are {labels.dtype} of shape "
            f"{labels.shape}; iid, quantity and noise work without labels."
        )
    if clients > len(labels):
        raise InvalidInput(f"clients is {clients}, more than the {len(labels)} training samples.")
    name, _, option = spec.partition(":")
    rng = generator(seed, "partition")
    if is_own_partition(spec):
        result = own_partition(spec, labels, clients, rng)
    elif name == "natural":
        result = natural(users, clients)
    elif name == "flwr":
        result = flower(labels, clients, seed, option)
    else:
        result = PARTITIONS[EXAMPLES[name]](labels, clients, rng, *([float(option)] if option else []))
    for client, indices in enumerate(result.indices):
        if len(indices) == 0:
            raise InvalidInput(
                f"The partition {spec} leaves client {client} of {clients} without samples; use fewer clients."
            )
    return result


__all__ = ["Indices", "Partition", "check_partition", "is_own_partition", "label_counts", "needs_labels", "partition"]
