"""Samples of a client or of the test split, and the batches that local steps train on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from fedtaco.errors import InvalidInput

Prepare = Callable[[Tensor], Tensor]
"""Turns a batch of inputs as stored, such as bytes, into inputs of the model."""
MAX_CLASSES = 10_000
"""Integer targets that reach this number are not class labels."""


class Samples(Protocol):
    """Labelled samples that are accessed by index."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of these samples, ready for the model."""
        ...

    def subset(self, indices: Any) -> Samples:
        """Return some of the samples."""
        ...

    def labels(self) -> Tensor | None:
        """Return the targets of all samples; ``None`` if they are not in memory."""
        ...


class TensorSamples:
    """Samples in two tensors.

    Parameters
    ----------
    x : Tensor
        Inputs, as stored; they may have a compact dtype, such as bytes, if there is a ``prepare``.
    y : Tensor
        Targets.
    prepare : callable, optional
        Turns a batch of ``x`` into inputs of the model.
    chosen : Tensor, optional
        Indices of the samples that belong to this object; all by default.

    Raises
    ------
    InvalidInput
        If the numbers of inputs and targets differ.

    Examples
    --------
    >>> samples = TensorSamples(torch.arange(6).reshape(3, 2), torch.tensor([0, 1, 0]), prepare=Tensor.float)
    >>> samples.subset([1, 2]).batch(torch.tensor([1]))
    (tensor([[4., 5.]]), tensor([0]))
    """

    def __init__(self, x: Tensor, y: Tensor, prepare: Prepare | None = None, chosen: Tensor | None = None) -> None:
        if len(x) != len(y):
            raise InvalidInput(f"There are {len(x)} inputs but {len(y)} targets; each input needs one target.")
        self.x, self.y, self.prepare, self.chosen = x, y, prepare, chosen

    def __len__(self) -> int:
        return len(self.y) if self.chosen is None else len(self.chosen)

    def subset(self, indices: Any) -> TensorSamples:
        """Return some of the samples; they share memory with the whole."""
        part = torch.as_tensor(indices)
        return TensorSamples(self.x, self.y, self.prepare, part if self.chosen is None else self.chosen[part])

    def labels(self) -> Tensor:
        """Return the targets of all samples."""
        return self.y if self.chosen is None else self.y[self.chosen]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the prepared inputs and the targets of these samples."""
        if self.chosen is not None:
            indices = self.chosen[indices]
        x, y = self.x.index_select(0, indices), self.y.index_select(0, indices)
        return (x if self.prepare is None else self.prepare(x)), (y if y.is_floating_point() else y.long())


class DatasetSamples:
    """Samples of a ``torch.utils.data.Dataset`` that yields pairs (input, target)."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(cast(Sized, self.dataset))

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the collated inputs and targets of these samples."""
        items = [self.dataset[int(i)] for i in indices]
        if not isinstance(items[0], tuple | list) or len(items[0]) != 2:
            raise InvalidInput(f"The dataset yields a {type(items[0]).__name__}; it must yield pairs (input, target).")
        x, y = default_collate(items)
        return x, (y if y.is_floating_point() else y.long())

    def subset(self, indices: Any) -> DatasetSamples:
        """Return some of the samples."""
        return DatasetSamples(Subset(self.dataset, torch.as_tensor(indices).tolist()))

    def labels(self) -> None:
        """Return ``None``: targets are known only when samples are read."""


class StackedBatches:
    """The batches of several clients, stacked along a new first dimension.

    If the samples of all clients are parts of the same tensors, each batch is read in one operation.

    Parameters
    ----------
    clients : sequence of Samples
        The samples of each client.
    plans : sequence of Tensor
        The indices of each client's batches, (steps, batch size); see :func:`batch_plan`.
    seeds : sequence of int
        For each client, the seed of its dataset's random draws, such as random crops, in step 0; step k adds k to it.
    """

    def __init__(self, clients: Sequence[Samples], plans: Sequence[Tensor], seeds: Sequence[int]) -> None:
        self.clients, self.indices, self.seeds = clients, torch.stack(list(plans), dim=1), seeds
        self.whole = _common_tensors(clients)
        if self.whole is not None:
            for client, samples in enumerate(cast(Sequence[TensorSamples], clients)):
                if samples.chosen is not None:
                    self.indices[:, client] = samples.chosen[self.indices[:, client]]

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of one step, both (clients, batch size, ...)."""
        indices = self.indices[step]
        if self.whole is not None:
            x, y = self.whole.batch(indices.flatten())
            return x.unflatten(0, indices.shape), y.unflatten(0, indices.shape)
        batches = []
        for samples, own, seed in zip(self.clients, indices, self.seeds, strict=True):
            torch.default_generator.manual_seed(seed + step)
            batches.append(samples.batch(own))
        return torch.stack([x for x, _ in batches]), torch.stack([y for _, y in batches])


def _common_tensors(clients: Sequence[Samples]) -> TensorSamples | None:
    """Return the samples that all clients hold parts of, or ``None`` if their tensors differ."""
    tensors = {(id(c.x), id(c.y), id(c.prepare)) if isinstance(c, TensorSamples) else None for c in clients}
    first = clients[0]
    if len(tensors) > 1 or not isinstance(first, TensorSamples):
        return None
    return TensorSamples(first.x, first.y, first.prepare)


def class_labels(samples: Samples) -> npt.NDArray[np.int64] | None:
    """Return the class label of each sample; ``None`` if the targets are not class labels in memory.

    >>> class_labels(as_samples((np.zeros((3, 2)), [0, 1, 0])))
    array([0, 1, 0])
    """
    y = samples.labels()
    if y is None or y.ndim != 1 or y.is_floating_point() or len(y) == 0:
        return None
    return y.long().numpy() if 0 <= int(y.min()) <= int(y.max()) < MAX_CLASSES else None


def as_samples(data: object) -> Samples:
    """Return data of any supported kind as samples.

    Parameters
    ----------
    data : object
        A pair of tensors or arrays, a ``torch.utils.data.Dataset`` with a length, a ``datasets.Dataset`` with an
        input and a label column, or samples, which are returned unchanged.

    Returns
    -------
    Samples
        :class:`DatasetSamples` for a torch ``Dataset`` other than ``TensorDataset``, else :class:`TensorSamples`.

    Raises
    ------
    InvalidInput
        If the data are of another kind, or a ``datasets.Dataset`` does not have two columns.

    Examples
    --------
    >>> len(as_samples((np.zeros((5, 2)), np.arange(5))))
    5
    """
    if isinstance(data, TensorSamples | DatasetSamples):
        return data
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return TensorSamples(*data.tensors)
    if isinstance(data, tuple) and len(data) == 2:
        x, y = (torch.as_tensor(part) for part in data)
        return TensorSamples(x, y)
    if hasattr(data, "column_names") and hasattr(data, "select_columns"):
        inputs, labels = (torch.from_numpy(array) for array in hub_dataset_arrays(data))
        return TensorSamples(inputs, labels, _scale_bytes if inputs.dtype == torch.uint8 else None)
    if isinstance(data, Dataset) and hasattr(data, "__len__"):
        return DatasetSamples(data)
    raise InvalidInput(
        f"Cannot read samples from {type(data).__name__}; pass a pair (x, y) of tensors or arrays, a torch Dataset "
        "with a length that yields such pairs, or a datasets.Dataset with two columns."
    )


def _scale_bytes(images: Tensor) -> Tensor:
    return images.float() / 255


def hub_dataset_arrays(dataset: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the inputs and labels of a ``datasets.Dataset``.

    Images are returned as (n, channels, height, width); float64 inputs are converted to float32.

    Parameters
    ----------
    dataset : datasets.Dataset
        A dataset with two columns, first the input and then the label.

    Returns
    -------
    x, y : arrays
        The inputs and the labels.

    Raises
    ------
    InvalidInput
        If the dataset does not have two columns.
    """
    if len(dataset.column_names) != 2:
        raise InvalidInput(
            f"The dataset has the columns {', '.join(dataset.column_names)}; select the input and the label with "
            "dataset.select_columns([input, label])."
        )
    first, second = dataset.column_names
    x, y = dataset[first][:], np.asarray(dataset[second][:])
    if hasattr(x[0], "convert"):
        return channels_first(np.stack([np.asarray(image) for image in x])), y
    inputs = np.asarray(x)
    return (inputs.astype(np.float32) if inputs.dtype == np.float64 else inputs), y


def channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rearrange images (n, height, width) or (n, height, width, channels) as (n, channels, height, width)."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def batch_plan(rng: np.random.Generator, count: int, steps: int, batch_size: int) -> Tensor:
    """Draw the indices of the samples that each local step of a client trains on.

    The samples are permuted anew for every pass, and the passes are joined and cut into full batches. A client
    with fewer samples than a batch therefore repeats them within a batch.

    Parameters
    ----------
    rng : numpy.random.Generator
        Generator for this client and round.
    count : int
        Number of samples of the client.
    steps : int
        Number of local steps.
    batch_size : int
        Number of samples per step.

    Returns
    -------
    Tensor
        Indices, (steps, batch_size).

    Examples
    --------
    >>> batch_plan(np.random.default_rng(0), count=4, steps=2, batch_size=4).sort().values
    tensor([[0, 1, 2, 3],
            [0, 1, 2, 3]])
    """
    passes = math.ceil(steps * batch_size / count)
    order = rng.permuted(np.tile(np.arange(count), (passes, 1)), axis=1).reshape(-1)
    return torch.from_numpy(order[: steps * batch_size].reshape(steps, batch_size))
