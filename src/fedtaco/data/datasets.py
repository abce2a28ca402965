"""Datasets by name, ready to be partitioned."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedtaco.data.catalog import DatasetInfo, dataset_info
from fedtaco.data.partitions import Partition, partition
from fedtaco.data.samples import TensorSamples, as_samples
from fedtaco.data.store import data_folder, load_stored
from fedtaco.errors import InvalidInput
from fedtaco.randomness import generator

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Data:
    """Training and test samples; ``users`` says which user each training sample belongs to, where that is known."""

    info: DatasetInfo
    train: TensorSamples
    test: TensorSamples
    users: Tensor | None = None


@dataclass(frozen=True)
class Standardize:
    """Pixels to [0, 1], then to mean 0 and deviation 1 over the training set, per channel."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        mean = torch.tensor(self.mean, device=images.device)[:, None, None]
        deviation = torch.tensor(self.deviation, device=images.device)[:, None, None]
        return images.float().mul_(self.scale).sub_(mean).div_(deviation)


def load_dataset(name: str, data_dir: str | Path | None = None) -> Data:
    """Load a dataset by name, from the data folder unless it is embedded.

    >>> data = load_dataset("digits")
    >>> len(data.train), len(data.test), data.info.shape
    (1437, 360, (1, 8, 8))
    """
    info = dataset_info(name)
    if name == "digits":
        return _digits(info)
    tensors, facts = load_stored(info, data_folder(data_dir))
    prepare: Callable[[Tensor], Tensor] = Tensor.long if name == "shakespeare" else Tensor.float
    if "mean" in facts:
        prepare = Standardize(1 / 255, tuple(facts["mean"]), tuple(facts["deviation"]))
    train, test = (TensorSamples(tensors[part]["x"], tensors[part]["y"], prepare) for part in ("train", "test"))
    return Data(info, train, test, tensors["train"].get("user"))


def partition_of(data: Data, spec: str, clients: int, seed: int) -> Partition:
    """Partition the training samples of a dataset."""
    users = None if data.users is None else data.users.numpy()
    return partition(spec, data.train.y.numpy(), clients, seed, users)


def hold_out(
    parts: Sequence[Indices], fraction: float, seed: int, without: Collection[int] = ()
) -> tuple[list[Indices], Indices]:
    """Take a part of every client's samples away, at least one from whoever has two: what is left, and what is taken.

    What is taken from the clients ``without`` whom the federation has to do is thrown away.

    >>> left, taken = hold_out([np.arange(10), np.arange(10, 11)], 0.2, seed=0)
    >>> [len(part) for part in left], len(taken)
    ([8, 1], 2)
    """
    left, taken = [], []
    for client, part in enumerate(parts):
        count = min(len(part) - 1, math.ceil(fraction * len(part)))
        order = generator(seed, "validation", client).permutation(len(part))
        left.append(part[np.sort(order[count:])])
        taken.append(part[np.sort(order[: 0 if client in without else count])])
    return left, np.concatenate(taken)


def split(data: object, spec: str, clients: int, seed: int = 0) -> list[TensorSamples]:
    """Your own samples, a pair of arrays or a ``datasets.Dataset``, as the clients of a federation.

    >>> clients = split((torch.randn(100, 4), torch.arange(100) % 3), "dirichlet:0.5", clients=5)
    >>> sum(len(client) for client in clients)
    100
    """
    samples = as_samples(data)
    if not isinstance(samples, TensorSamples):
        raise InvalidInput("Only samples with labels at hand can be split: give a pair (x, y) of tensors or arrays.")
    result = partition(spec, samples.labels().numpy(), clients, seed)
    for note in result.notes:
        warnings.warn(note, stacklevel=2)
    return [samples.subset(part) for part in result.indices]


def _digits(info: DatasetInfo) -> Data:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)
    pixels = torch.as_tensor(x_train, dtype=torch.float32) / 16
    prepare = Standardize(1 / 16, (float(pixels.mean()),), (float(pixels.std()),))

    def samples(images: object, labels: object) -> TensorSamples:
        compact = torch.as_tensor(images, dtype=torch.uint8).reshape(-1, 1, 8, 8)
        return TensorSamples(compact, torch.as_tensor(labels, dtype=torch.uint8), prepare)

    return Data(info, samples(x_train, y_train), samples(x_test, y_test))
