"""Load, fetch, partition and split datasets."""

import math
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from fedtaco.data.cache import data_folder
from fedtaco.data.joined import JoinedSamples
from fedtaco.data.noise import add_noise
from fedtaco.data.own_data import as_samples
from fedtaco.data.partitions import Indices, Partition, check_partition, needs_labels, partition
from fedtaco.data.samples import Samples
from fedtaco.data.sources import find_source
from fedtaco.data.sources.base import LoadedDataset, Progress, TaskData
from fedtaco.errors import InvalidInput
from fedtaco.randomness import generator


def load_dataset(name: str, data_dir: str | Path | None = None) -> LoadedDataset:
    """Load a dataset by name.

    The first load reads the publisher's files and writes a cache, which later loads map into memory.

    Parameters
    ----------
    name : str
        Name of the dataset, as listed by ``fedtaco data list``.
    data_dir : str or Path, optional
        Data folder; by default the environment variable ``FEDTACO_DATA``, else ``~/.cache/fedtaco``.

    Returns
    -------
    LoadedDataset
        The training and test samples, and the user of each training sample if the dataset records it.

    Raises
    ------
    InvalidInput
        If there is no such dataset, or its files are missing or damaged.

    Examples
    --------
    >>> data = load_dataset("digits")
    >>> len(data.train), len(data.test), data.info.shape
    (1437, 360, (1, 8, 8))
    """
    return find_source(name).load(data_folder(data_dir))


def fetch_dataset(
    name: str, data_dir: str | Path | None = None, address: str | None = None, progress: Progress = lambda *_: None
) -> Path:
    """Download a dataset into the data folder.

    Parameters
    ----------
    name : str
        Name of the dataset, as listed by ``fedtaco data list``.
    data_dir : str or Path, optional
        Data folder; by default the environment variable ``FEDTACO_DATA``, else ``~/.cache/fedtaco``.
    address : str, optional
        Repository on the Hugging Face hub or local folder in the hub's parquet layout (for adult: URL of a zip
        archive) to use instead of the dataset's own.
    progress : callable, optional
        Called with the name of a split, the number of samples read so far and the number of samples in the split.

    Returns
    -------
    Path
        Folder in which the dataset was stored.

    Raises
    ------
    InvalidInput
        If there is no such dataset, or the download fails or has the wrong number of samples; nothing is stored then.
    """
    source = find_source(name)
    return source.fetch(data_folder(data_dir), address or source.info.hub, progress)


def partition_dataset(data: TaskData, spec: str, clients: int, seed: int) -> Partition:
    """Partition the training samples of a dataset over clients.

    Parameters
    ----------
    data : TaskData
        The dataset.
    spec : str
        Partition, such as ``groups`` or ``dirichlet:0.5``; see :func:`partition`. It is not used if the data are given
        for each client.
    clients : int
        Number of clients.
    seed : int
        Seed of the partition.

    Returns
    -------
    Partition
        The indices of each client's training samples.

    Raises
    ------
    InvalidInput
        If the samples cannot be partitioned in this way.

    Examples
    --------
    >>> result = partition_dataset(load_dataset("digits"), "groups", clients=20, seed=0)
    >>> len(result.indices), sum(len(part) for part in result.indices)
    (20, 1437)
    """
    if isinstance(data.train, JoinedSamples):
        return Partition(data.train.by_client())
    users, labels = None if data.users is None else data.users.numpy(), data.labels
    if labels is None and needs_labels(spec):
        raise InvalidInput(
            f"The partition {spec} needs class labels in memory, one per sample; use iid, quantity or noise."
        )
    return partition(spec, np.zeros(len(data.train), np.int64) if labels is None else labels, clients, seed, users)


def hold_out(
    parts: Sequence[Indices], fraction: float, seed: int, exclude: Collection[int] = ()
) -> tuple[list[Indices], list[Indices]]:
    """Hold out a fraction of every client's samples, for validation.

    If the fraction is above 0, at least one sample is held out from each client that has two or more.

    Parameters
    ----------
    parts : sequence of arrays
        Indices of each client's samples.
    fraction : float
        Fraction of every client's samples to hold out.
    seed : int
        Seed of the choice.
    exclude : collection of int, optional
        Clients whose held-out samples are discarded.

    Returns
    -------
    remaining : list of arrays
        Indices of each client's remaining samples.
    held_out : list of arrays
        Indices of each client's held-out samples.

    Examples
    --------
    >>> remaining, held_out = hold_out([np.arange(10), np.arange(10, 11)], 0.2, seed=0)
    >>> [len(part) for part in remaining], [len(part) for part in held_out]
    ([8, 1], [2, 0])
    """
    if fraction == 0:
        return list(parts), [part[:0] for part in parts]
    remaining, held_out = [], []
    for client, part in enumerate(parts):
        count = min(len(part) - 1, math.ceil(fraction * len(part)))
        order = generator(seed, "validation", client).permutation(len(part))
        remaining.append(part[np.sort(order[count:])])
        held_out.append(part[np.sort(order[: 0 if client in exclude else count])])
    return remaining, held_out


def split(data: object, spec: str, clients: int, seed: int = 0) -> list[Samples]:
    """Split samples of your own over clients.

    Parameters
    ----------
    data : object
        The samples, in any form that :func:`as_samples` accepts. Partitions by label use integer targets; those of a
        torch ``Dataset`` are known if it has an attribute ``targets`` or ``labels``.
    spec : str
        Partition, such as ``iid`` or ``dirichlet:0.5``; see :func:`partition`.
    clients : int
        Number of clients.
    seed : int, default 0
        Seed of the partition.

    Returns
    -------
    list of Samples
        The samples of each client. Only ``noise`` copies the data, if they are in memory.

    Raises
    ------
    InvalidInput
        If the samples cannot be partitioned in this way.

    Examples
    --------
    >>> clients = split((np.zeros((100, 4)), np.arange(100) % 3), "dirichlet:0.5", clients=5)
    >>> sum(len(client) for client in clients)
    100
    """
    check_partition(spec)
    samples = as_samples(data)
    labels = samples.labels()
    if labels is None and needs_labels(spec):
        raise InvalidInput(
            f"The partition {spec} needs one integer label per sample, but the dataset has no attribute 'targets' or "
            "'labels'; add one, or use iid, quantity or noise, which work without labels."
        )
    known = np.zeros(len(samples), dtype=np.int64) if labels is None else labels.numpy()
    result = partition(spec, known, clients, seed)
    for note in result.notes:
        warnings.warn(note, stacklevel=2)
    samples = add_noise(samples, result, seed)
    return [samples.subset(part) for part in result.indices]
