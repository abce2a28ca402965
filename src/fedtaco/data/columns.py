"""Columns of data frames and of ``datasets.Dataset`` as tensors. Neither library is imported here."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedtaco.errors import InvalidInput, unknown

Array = npt.NDArray[Any]


def is_frame(data: object) -> bool:
    """Return whether data are a pandas ``DataFrame``."""
    return hasattr(data, "columns") and hasattr(data, "isna")


def is_series(data: object) -> bool:
    """Return whether data are a pandas ``Series``."""
    return hasattr(data, "to_numpy") and hasattr(data, "isna") and not is_frame(data)


def is_hub_dataset(data: object) -> bool:
    """Return whether data are a ``datasets.Dataset``, or several of them."""
    return hasattr(data, "column_names") and hasattr(data, "select_columns")


def has_transform(dataset: Any) -> bool:
    """Return whether a ``datasets.Dataset`` computes its items with a function of the user (``with_transform``)."""
    return not isinstance(dataset, dict) and bool(dataset.format["type"] == "custom")


def split_frame(frame: Any, target: object) -> tuple[Any, Any]:
    """Return the columns of a frame without the target, and the target; raise InvalidInput if it does not exist."""
    if target not in frame.columns:
        raise unknown("column", str(target), map(str, frame.columns))
    return frame.drop(columns=[target]), frame[target]


def frame_tensor(frame: Any) -> Tensor:
    """Return all columns of a frame as one float32 matrix; raise InvalidInput if a column is not numeric."""
    if not len(frame.columns):
        raise InvalidInput("The frame has no input columns; give it at least one besides the target.")
    if not all(map(_is_numeric, frame.dtypes)) or frame.isna().to_numpy().any():
        for name, column in frame.items():
            _check_column(name, column)
    return array_tensor(np.ascontiguousarray(frame.to_numpy(dtype=np.float32)))


def series_tensor(series: Any) -> Tensor:
    """Return a series as float32 or, if it has integers or booleans, as int64; raise InvalidInput otherwise."""
    column = _check_column(series.name, series)
    return array_tensor(column.to_numpy(dtype=np.float32 if column.dtype.kind == "f" else np.int64))


def _is_numeric(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "biuf"


def _check_column(name: object, column: Any) -> Any:
    """Return a column; raise InvalidInput if it is not numeric or if values are missing."""
    if not _is_numeric(column.dtype):
        raise InvalidInput(
            f"The column '{name}' has the type {column.dtype}; convert it to numbers first, for example inputs with "
            "pandas.get_dummies and targets with astype('category').cat.codes."
        )
    if column.isna().any():
        raise InvalidInput(
            f"The column '{name}' has {int(column.isna().sum())} missing values; remove these rows, or fill them."
        )
    return column


def hub_columns(dataset: Any) -> dict[str, Tensor]:
    """Return the columns of a ``datasets.Dataset``.

    Images are returned as bytes, (n, channels, height, width).

    Parameters
    ----------
    dataset : datasets.Dataset
        The dataset.

    Returns
    -------
    dict of Tensor
        The columns by name.

    Raises
    ------
    InvalidInput
        If a column contains something else than numbers or images of one shape.
    """
    if isinstance(dataset.column_names, dict):
        raise InvalidInput(
            f"The dataset has the splits {', '.join(dataset.column_names)}; choose one, as in "
            f"dataset['{next(iter(dataset.column_names))}']."
        )
    return {name: _hub_column(name, dataset[name][:]) for name in dataset.column_names}


def _hub_column(name: str, values: Any) -> Tensor:
    try:
        if len(values) and hasattr(values[0], "convert"):
            return array_tensor(channels_first(np.stack([np.asarray(image) for image in values])))
        return array_tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"The column '{name}' does not contain numbers of one shape; pad sequences, encode text, or remove the "
            f"column with dataset.remove_columns('{name}')."
        ) from error


def channels_first(images: Array) -> Array:
    """Rearrange images (n, height, width) or (n, height, width, channels) as (n, channels, height, width)."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def array_tensor(array: Array) -> Tensor:
    """Return a tensor that shares memory with an array, if possible; samples are never written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.as_tensor(array)
