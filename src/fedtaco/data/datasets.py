"""Datasets by name."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor

from fedtaco.data.samples import TensorSamples
from fedtaco.errors import unknown


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset before it is loaded, with the settings an experiment takes by default."""

    name: str
    model: str
    partition: str
    rounds: int
    local_steps: int
    local_lr: float
    target: float
    """The test accuracy that rounds-to-accuracy counts towards."""


@dataclass(frozen=True)
class Data:
    """Training and test samples."""

    train: TensorSamples
    test: TensorSamples
    classes: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])


DATASETS = {
    "digits": DatasetInfo(
        "digits", model="mlp:64-32", partition="groups", rounds=20, local_steps=50, local_lr=0.05, target=0.9
    )
}


def dataset_info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]


def load_dataset(name: str) -> Data:
    """Load a dataset by name.

    >>> data = load_dataset("digits")
    >>> len(data.train), len(data.test), data.shape
    (1437, 360, (8, 8))
    """
    dataset_info(name)
    x, y = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)

    pixels = torch.as_tensor(x_train, dtype=torch.float32) / 16
    prepare = Standardize(scale=1 / 16, mean=float(pixels.mean()), deviation=float(pixels.std()))

    def samples(images: object, labels: object) -> TensorSamples:
        compact = torch.as_tensor(images, dtype=torch.uint8).reshape(-1, 8, 8)
        return TensorSamples(compact, torch.as_tensor(labels, dtype=torch.long), prepare)

    return Data(samples(x_train, y_train), samples(x_test, y_test), classes=10)


@dataclass(frozen=True)
class Standardize:
    """Pixels to [0, 1], then to mean 0 and deviation 1 over the training set."""

    scale: float
    mean: float
    deviation: float

    def __call__(self, images: Tensor) -> Tensor:
        return images.float().mul_(self.scale).sub_(self.mean).div_(self.deviation)
