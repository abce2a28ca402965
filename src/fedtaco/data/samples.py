"""Samples: what one client, or the test set, holds; and which of them each local step sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from fedtaco.data.hub import hub_dataset_arrays
from fedtaco.errors import InvalidInput


class Samples(Protocol):
    """Labelled samples that can be fetched by index."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of these samples, ready for the model."""
        ...


class TensorSamples:
    """Samples in two tensors, kept compact and made ready per batch; ``chosen`` restricts them without a copy.

    >>> samples = TensorSamples(torch.arange(6).reshape(3, 2), torch.tensor([0, 1, 0]), prepare=Tensor.float)
    >>> samples.subset([1, 2]).batch(torch.tensor([1]))
    (tensor([[4., 5.]]), tensor([0]))
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        prepare: Callable[[Tensor], Tensor] | None = None,
        chosen: Tensor | None = None,
    ) -> None:
        if len(x) != len(y):
            raise InvalidInput(f"There are {len(x)} inputs but {len(y)} targets; each input needs one.")
        self.x, self.y, self.prepare, self.chosen = x, y, prepare, chosen

    def __len__(self) -> int:
        return len(self.y) if self.chosen is None else len(self.chosen)

    def subset(self, indices: Any) -> TensorSamples:
        """A part of the samples, which shares their memory."""
        part = torch.as_tensor(indices)
        return TensorSamples(self.x, self.y, self.prepare, part if self.chosen is None else self.chosen[part])

    def labels(self) -> Tensor:
        return self.y if self.chosen is None else self.y[self.chosen]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        if self.chosen is not None:
            indices = self.chosen[indices]
        x, y = self.x.index_select(0, indices), self.y.index_select(0, indices)
        return (x if self.prepare is None else self.prepare(x)), (y if y.is_floating_point() else y.long())


class DatasetSamples:
    """Samples of a ``torch.utils.data.Dataset`` that yields (input, target)."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        items = [self.dataset[int(i)] for i in indices]
        if not isinstance(items[0], tuple | list) or len(items[0]) != 2:
            raise InvalidInput(f"The dataset yields a {type(items[0]).__name__}; it must yield pairs (input, target).")
        x, y = default_collate(items)
        return x, (y if y.is_floating_point() else y.long())


class StackedBatches:
    """The batches of several clients, step by step: inputs (n, b, ...) and targets (n, b, ...).

    What a client's dataset draws in a step follows from its number in ``draws``.
    Clients that are parts of the same tensors are fetched at once.
    """

    def __init__(self, clients: Sequence[Samples], plans: Sequence[Tensor], draws: Sequence[int]) -> None:
        self.clients, self.indices, self.draws = clients, torch.stack(list(plans), dim=1), draws
        self.whole = _common_tensors(clients)
        if self.whole is not None:
            for client, samples in enumerate(cast(Sequence[TensorSamples], clients)):
                if samples.chosen is not None:
                    self.indices[:, client] = samples.chosen[self.indices[:, client]]

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        indices = self.indices[step]
        if self.whole is not None:
            x, y = self.whole.batch(indices.flatten())
            return x.unflatten(0, indices.shape), y.unflatten(0, indices.shape)
        batches = []
        for samples, own, first in zip(self.clients, indices, self.draws, strict=True):
            torch.default_generator.manual_seed(first + step)
            batches.append(samples.batch(own))
        return torch.stack([x for x, _ in batches]), torch.stack([y for _, y in batches])


def _common_tensors(clients: Sequence[Samples]) -> TensorSamples | None:
    """The samples that all clients are parts of, if there are such."""
    first = clients[0]
    if not isinstance(first, TensorSamples):
        return None
    for other in clients:
        if not (isinstance(other, TensorSamples) and other.x is first.x and other.y is first.y):
            return None
        if other.prepare is not first.prepare:
            return None
    return TensorSamples(first.x, first.y, first.prepare)


def as_samples(data: object) -> Samples:
    """Samples from a pair of tensors or arrays, or from a ``Dataset``."""
    if isinstance(data, TensorSamples | DatasetSamples):
        return data
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return TensorSamples(*data.tensors)
    if isinstance(data, tuple) and len(data) == 2:
        x, y = (torch.as_tensor(part) for part in data)
        return TensorSamples(x, y)
    if hasattr(data, "column_names") and hasattr(data, "select_columns"):
        inputs, labels = (torch.from_numpy(array) for array in hub_dataset_arrays(data))
        return TensorSamples(inputs, labels, _unit_scale if inputs.dtype == torch.uint8 else None)
    if isinstance(data, Dataset) and hasattr(data, "__len__"):
        return DatasetSamples(data)
    raise InvalidInput(
        f"Cannot read samples from {type(data).__name__}; give a pair (x, y) of tensors, "
        "a torch Dataset with a length that yields such pairs, or a datasets.Dataset with two columns."
    )


def _unit_scale(images: Tensor) -> Tensor:
    return images.float() / 255


def batch_plan(rng: np.random.Generator, count: int, steps: int, batch_size: int) -> Tensor:
    """Which of a client's ``count`` samples each local step sees, as indices [steps, batch_size].

    Fresh permutations, one after another, cut into full batches: a client with fewer samples than a
    batch repeats them, and nothing persists between rounds.

    >>> batch_plan(np.random.default_rng(0), count=4, steps=2, batch_size=4).sort().values
    tensor([[0, 1, 2, 3],
            [0, 1, 2, 3]])
    """
    passes = math.ceil(steps * batch_size / count)
    order = rng.permuted(np.tile(np.arange(count), (passes, 1)), axis=1).reshape(-1)
    return torch.from_numpy(order[: steps * batch_size].reshape(steps, batch_size))
