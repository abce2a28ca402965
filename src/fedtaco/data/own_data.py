"""Data in the forms that users have them, as samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

from fedtaco.data.columns import (
    array_tensor,
    frame_tensor,
    has_transform,
    hub_columns,
    is_frame,
    is_hub_dataset,
    is_series,
    series_tensor,
    split_frame,
)
from fedtaco.data.samples import TARGET_KEYS, DatasetSamples, Samples, TensorSamples, find_target
from fedtaco.errors import InvalidInput
from fedtaco.files import reason_of
from fedtaco.inputs import Inputs

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types for which torch lacks most operations."""


def as_samples(data: object) -> Samples:
    """Return data of any supported form as samples.

    Parameters
    ----------
    data : object
        - a pair ``(inputs, targets)`` of tensors, arrays, lists, or a pandas frame and a series. Several inputs are a
          tuple or a mapping of tensors or arrays;
        - a mapping of tensors or arrays, a ``datasets.Dataset`` or a ``torch.utils.data.Dataset`` with a length.
          The latter yields pairs or mappings. In a mapping, the target is ``labels``, ``label`` or ``target``;
        - a pair ``(frame, "column")`` or ``(dataset, "key")``, which names the target;
        - a ``DataLoader``: its dataset and ``collate_fn`` are used, not its batch size and order;
        - samples, which are returned unchanged.

    Returns
    -------
    Samples
        :class:`TensorSamples` if the data are in memory, else :class:`DatasetSamples`.

    Raises
    ------
    InvalidInput
        If the data are of another form, or are not numbers.

    Examples
    --------
    >>> len(as_samples((np.zeros((5, 2)), np.arange(5))))
    5
    >>> samples = as_samples({"codes": [[1, 2], [3, 4]], "mask": [[1, 1], [1, 0]], "labels": [0, 1]})
    >>> samples.batch(torch.tensor([1]))
    ({'codes': tensor([[3, 4]]), 'mask': tensor([[1, 0]])}, tensor([1]))
    """
    if isinstance(data, Samples):
        return data
    if not isinstance(data, tuple):
        return _from_one_object(data, None)
    if len(data) != 2:
        raise InvalidInput(
            f"The data are a tuple of {len(data)}; give a pair (inputs, targets), with several inputs as a tuple: "
            "((first, second), targets)."
        )
    first, second = data
    if isinstance(second, str) or (is_frame(first) and isinstance(second, int)):
        return _from_one_object(first, second)
    return _from_inputs(first, second)


def _from_one_object(data: Any, target: Any) -> Samples:
    """Return the samples of an object that contains inputs and targets; ``target`` is the key of the targets."""
    if isinstance(data, DataLoader):
        return _from_loader(data, target)
    if is_frame(data):
        if target is None:
            raise InvalidInput("A DataFrame does not say which column is the target; give a pair (frame, 'column').")
        return _from_inputs(*split_frame(data, target))
    if isinstance(data, TensorDataset) and len(data.tensors) == 2 and target is None:
        return _from_inputs(*data.tensors)
    if is_hub_dataset(data):
        return _from_hub(_require_items(data), target)
    if isinstance(data, Dataset):
        return DatasetSamples(_require_items(data), target)
    if isinstance(data, Mapping) and data:
        key = find_target(list(data), target)
        return _from_inputs({name: values for name, values in data.items() if name != key}, data[key])
    raise InvalidInput(
        f"Cannot read samples from {type(data).__name__}; pass a pair (inputs, targets) of tensors, arrays or lists, a "
        "pair (DataFrame, 'target'), a torch Dataset with a length, a DataLoader, or a datasets.Dataset."
    )


def _from_loader(loader: DataLoader[Any], target: Any) -> Samples:
    dataset = _require_items(loader.dataset)
    for sampler in (loader.sampler, loader.batch_sampler):
        if sampler is not None and type(sampler) not in (SequentialSampler, RandomSampler, BatchSampler):
            raise InvalidInput(
                f"The DataLoader has a {type(sampler).__name__}, but the run itself draws the batches, from the whole "
                "dataset; choose samples with torch.utils.data.Subset instead."
            )
    if loader.collate_fn not in (default_collate, default_convert):
        return DatasetSamples(dataset, target, loader.collate_fn)
    return DatasetSamples(dataset, target) if isinstance(dataset, list) else _from_one_object(dataset, target)


def _require_items(dataset: Any) -> Any:
    """Return a dataset; raise InvalidInput if its samples cannot be accessed by index."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise InvalidInput(
            f"The dataset is a {type(dataset).__name__}, whose samples cannot be accessed by index; give a map-style "
            "Dataset, which has __getitem__ and __len__."
        )
    return dataset


def _from_hub(dataset: Any, target: str | None) -> Samples:
    """Return the samples of a ``datasets.Dataset``; a single input column is passed without its name.

    Of two columns, the second is the target unless the name of the first says otherwise. A dataset with a transform
    of its own is read sample by sample.
    """
    if has_transform(dataset):
        return DatasetSamples(dataset, target)
    columns = hub_columns(dataset)
    names = list(columns)
    if len(names) == 2 and not set(names) & set(TARGET_KEYS):
        target = target or names[1]
    y = columns.pop(find_target(names, target))
    floats = {name: x.float() if x.dtype == torch.float64 else x for name, x in columns.items()}
    return TensorSamples(floats if len(floats) > 1 else next(iter(floats.values())), y, _scale_bytes)


def _scale_bytes(tensor: Tensor) -> Tensor:
    """Scale bytes, which are images, to [0, 1]."""
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor


def _from_inputs(inputs: Any, targets: Any) -> TensorSamples:
    y = _to_tensor("targets", targets)
    if isinstance(inputs, Mapping):
        x: Inputs = {name: _to_tensor(f"input '{name}'", part) for name, part in inputs.items()}
    elif isinstance(inputs, tuple) and all(hasattr(part, "shape") for part in inputs) and not _one_each(inputs, y):
        x = tuple(_to_tensor(f"input {place}", part) for place, part in enumerate(inputs))
    else:
        x = _to_tensor("inputs", inputs)
    return TensorSamples(x, y.long() if y.dtype == torch.bool else y)


def _one_each(inputs: tuple[Any, ...], y: Tensor) -> bool:
    """Return whether a tuple contains one input per sample, and not all samples of each input."""
    return len(inputs) == len(y) and any(part.shape[:1] != (len(y),) for part in inputs)


def _to_tensor(name: str, values: Any) -> Tensor:
    """Return tensors, arrays, series, frames and lists as a tensor; raise InvalidInput if they are not numbers."""
    if is_frame(values) or is_series(values):
        return frame_tensor(values) if is_frame(values) else series_tensor(values)
    kinds = {type(value) for value in values} if isinstance(values, list | tuple) else set()
    try:
        if kinds == {np.ndarray}:
            values = np.stack(values)
        tensor = torch.stack(list(values)) if kinds == {Tensor} else array_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(values).__name__
        raise InvalidInput(f"The {name} cannot be read as numbers from a {kind}: {reason_of(error)}") from error
    if tensor.ndim == 0:
        raise InvalidInput(f"The {name} must have one entry per sample, but there is a single number.")
    return tensor.long() if tensor.dtype in UNSIGNED else tensor
