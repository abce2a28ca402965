"""Samples of a client or of the test split, which are read by index: from tensors, or from a torch Dataset."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset, default_collate

from fedtaco.errors import InvalidInput
from fedtaco.inputs import Batch, Inputs, map_inputs, tensors_of

Prepare = Callable[[Tensor], Tensor]
"""Turns a batch of inputs as stored, such as bytes, into inputs of the model."""
Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of samples, as the ``collate_fn`` of a ``DataLoader`` does."""
TARGET_KEYS = ("labels", "label", "target")
"""Keys that name the target of a sample that is a mapping; the first that exists is used."""
MAX_CLASSES = 10_000
"""Integer targets that reach this number are not class labels."""


class Samples(ABC):
    """Samples with targets, which are accessed by index.

    Parameters
    ----------
    chosen : Tensor, optional
        Indices, among all samples, of those that belong to this object; all by default.
    """

    has_fixed_shape = True
    """Whether all batches of the same size have the same shape."""

    def __init__(self, chosen: Tensor | None = None) -> None:
        self.chosen = chosen

    @abstractmethod
    def count(self) -> int:
        """Return the number of all samples, chosen or not."""

    @abstractmethod
    def read(self, rows: Tensor) -> Batch:
        """Return the inputs and targets of the samples at these rows, counted over all samples, chosen or not."""

    @abstractmethod
    def labels(self) -> Tensor | None:
        """Return the target of each sample; ``None`` if every sample would have to be read for that."""

    def __len__(self) -> int:
        return self.count() if self.chosen is None else len(self.chosen)

    def subset(self, indices: Any) -> Samples:
        """Return some of the samples; they share memory with the whole."""
        part = copy.copy(self)
        part.chosen = self.rows(torch.as_tensor(indices))
        return part

    def rows(self, indices: Tensor) -> Tensor:
        """Return the indices of these samples among all samples."""
        return indices if self.chosen is None else self.chosen[indices]

    def batch(self, indices: Tensor) -> Batch:
        """Return the inputs and targets of these samples, ready for the model; class labels are int64."""
        x, y = self.read(self.rows(indices))
        return x, (y if y.is_floating_point() else y.long())


class TensorSamples(Samples):
    """Samples in tensors.

    Parameters
    ----------
    x : Tensor, tuple of Tensor or dict of Tensor
        Inputs, as stored; they may have a compact dtype, such as bytes, if there is a ``prepare``.
    y : Tensor
        Targets.
    prepare : callable, optional
        Turns a batch of each tensor in ``x`` into inputs of the model.
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

    def __init__(self, x: Inputs, y: Tensor, prepare: Prepare | None = None, chosen: Tensor | None = None) -> None:
        super().__init__(chosen)
        for tensor in tensors_of(x):
            if len(tensor) != len(y):
                raise InvalidInput(f"There are {len(tensor)} inputs but {len(y)} targets; each input needs one target.")
        self.x, self.y, self.prepare = x, y, prepare

    def count(self) -> int:
        return len(self.y)

    def labels(self) -> Tensor:
        """Return the target of each sample."""
        return self.y if self.chosen is None else self.y[self.chosen]

    def read(self, rows: Tensor) -> Batch:
        x = map_inputs(lambda tensor: tensor.index_select(0, rows), self.x)
        return (x if self.prepare is None else map_inputs(self.prepare, x)), self.y.index_select(0, rows)


class DatasetSamples(Samples):
    """Samples of a dataset that yields pairs (inputs, target), or mappings of which one entry is the target.

    Parameters
    ----------
    dataset : torch.utils.data.Dataset
        The dataset, or any object with a length and items.
    target : str, optional
        Key of the target in a mapping; by default ``labels``, ``label`` or ``target``.
    collate : callable, optional
        Makes a batch of a list of samples.
    """

    def __init__(self, dataset: Any, target: str | None = None, collate: Collate = default_collate) -> None:
        super().__init__()
        self.dataset, self.target, self.collate = dataset, target, collate
        self.has_fixed_shape = collate is default_collate

    def count(self) -> int:
        return len(self.dataset)

    def labels(self) -> Tensor | None:
        labels = self._all_labels
        return labels if labels is None or self.chosen is None else labels[self.chosen]

    @cached_property
    def _all_labels(self) -> Tensor | None:
        """The targets of all samples, chosen or not; subsets that are made later share them."""
        return _stored_labels(self.dataset)

    def read(self, rows: Tensor) -> Batch:
        return split_batch(self.collate([self.dataset[int(row)] for row in rows]), self.target)


def _stored_labels(dataset: Any, rows: Sequence[int] | None = None) -> Tensor | None:
    """Return the labels that a dataset stores as ``targets`` or ``labels``, as those of torchvision do.

    Only those of ``rows`` are read, so that many small subsets of a large dataset take little time.
    """
    if isinstance(dataset, Subset):
        indices = dataset.indices
        return _stored_labels(dataset.dataset, indices if rows is None else [indices[row] for row in rows])
    if isinstance(dataset, ConcatDataset):
        parts = [labels for part in dataset.datasets if (labels := _stored_labels(part)) is not None]
        if len(parts) < len(dataset.datasets):
            return None
        return torch.cat(parts) if rows is None else torch.cat(parts)[torch.as_tensor(rows)]
    for name in ("targets", "labels"):
        stored: Any = getattr(dataset, name, None)
        if hasattr(stored, "__len__") and len(stored) == len(dataset):
            with suppress(TypeError, ValueError, RuntimeError):  # targets that are not numbers
                labels = torch.as_tensor(stored if rows is None else [stored[row] for row in rows])
                return labels if labels.is_floating_point() else labels.long()
    return None


def class_labels(samples: Samples) -> npt.NDArray[np.int64] | None:
    """Return the class label of each sample; ``None`` if the targets are not class labels in memory.

    >>> class_labels(TensorSamples(torch.zeros(3, 2), torch.tensor([0, 1, 0])))
    array([0, 1, 0])
    """
    y = samples.labels()
    if y is None or y.ndim != 1 or y.is_floating_point() or len(y) == 0:
        return None
    return y.long().numpy() if 0 <= int(y.min()) <= int(y.max()) < MAX_CLASSES else None


def split_batch(batch: object, target: str | None = None) -> Batch:
    """Separate a batch into inputs and targets.

    Parameters
    ----------
    batch : object
        A pair, or a mapping of which one entry is the target.
    target : str, optional
        Key of the target in a mapping; by default ``labels``, ``label`` or ``target``.

    Returns
    -------
    tuple
        The inputs and the targets.

    Raises
    ------
    InvalidInput
        If the batch is of another kind, has no target, or contains something else than tensors.

    Examples
    --------
    >>> split_batch({"codes": torch.tensor([[1, 2]]), "label": torch.tensor([0])})
    ({'codes': tensor([[1, 2]])}, tensor([0]))
    """
    if isinstance(batch, Mapping):
        key = find_target(list(batch), target)
        x, y = {name: value for name, value in batch.items() if name != key}, batch[key]
    elif isinstance(batch, tuple | list) and len(batch) == 2 and target is None:
        x, y = batch
    else:
        values = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
        expected = "pairs (inputs, target)" if target is None else f"mappings with the key '{target}'"
        raise InvalidInput(f"The dataset yields {values}; it must yield {expected}, several inputs as a tuple.")
    if not isinstance(y, Tensor):
        raise InvalidInput(f"The targets are a {type(y).__name__}; they must be numbers.")
    return _to_inputs(x), y


def find_target(keys: Sequence[str], target: str | None) -> str:
    """Return the key of the target; raise InvalidInput if there is none, or no other key."""
    for key in TARGET_KEYS if target is None else (target,):
        if key in keys and len(keys) == 1:
            raise InvalidInput(f"The samples have the single entry {key}; they need inputs besides the target.")
        if key in keys:
            return key
    wanted = "none of them is labels, label or target" if target is None else f"'{target}' is not one of them"
    raise InvalidInput(
        f"The samples have the entries {', '.join(map(str, keys))}, and {wanted}; name the target in a pair, as in "
        "(dataset, 'outcome')."
    )


def _to_inputs(data: Any) -> Inputs:
    """Return collated inputs as a tensor, a tuple or a dictionary; raise InvalidInput if they are anything else."""
    if isinstance(data, Tensor):
        return data
    named: Any = data if isinstance(data, Mapping) else dict(enumerate(data)) if isinstance(data, tuple | list) else {}
    if not named:
        raise InvalidInput(f"The inputs are a {type(data).__name__}; they must be tensors.")
    for name, part in named.items():
        if not isinstance(part, Tensor):
            raise InvalidInput(
                f"The input '{name}' is a {type(part).__name__} and not a tensor; convert it to numbers, or remove it."
            )
    return dict(named) if isinstance(data, Mapping) else tuple(data)
