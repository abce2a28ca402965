"""Features of the adult (census income) data, fitted on the training file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]

CATEGORIES = (
    *("workclass", "education", "marital-status", "occupation"),
    *("relationship", "race", "sex", "native-country"),
)
BINNED = ("age", "fnlwgt", "education-num", "hours-per-week")
SPARSE = ("capital-gain", "capital-loss")


def labels(columns: Columns) -> npt.NDArray[np.uint8]:
    """1 for an income above 50K."""
    high: npt.NDArray[np.bool_] = columns["income"] == ">50K"
    return high.astype(np.uint8)


def binary_features(train: Columns, test: Columns) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The 123 binary features whose counts are LIBSVM's a9a: 99 categories and 24 bins.

    Unknown entries ("?") have no column. Four numeric columns are cut into five bins at the training
    quantiles; capital gain and loss are zero or not.
    """
    known = [np.setdiff1d(train[name], "?") for name in CATEGORIES]
    cuts = {name: np.quantile(train[name].astype(float), (0.2, 0.4, 0.6, 0.8)) for name in BINNED}

    def encode(columns: Columns) -> npt.NDArray[np.uint8]:
        parts = [columns[name][:, None] == values for name, values in zip(CATEGORIES, known, strict=True)]
        for name in BINNED:
            bins = np.searchsorted(cuts[name], columns[name].astype(float))
            parts.append(bins[:, None] == np.arange(5))
        parts += [(columns[name].astype(float) > 0)[:, None] == np.array([False, True]) for name in SPARSE]
        return np.concatenate(parts, axis=1).astype(np.uint8)

    return encode(train), encode(test)


def standardized_features(train: Columns, test: Columns) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """One column a category, "?" included, and six numbers, each with mean 0 and deviation 1: 108."""
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = (*BINNED, *SPARSE)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder.fit(np.stack([train[name] for name in CATEGORIES], axis=1))

    def encode(columns: Columns) -> npt.NDArray[np.float64]:
        categories = encoder.transform(np.stack([columns[name] for name in CATEGORIES], axis=1))
        return np.concatenate([categories, *(columns[name].astype(float)[:, None] for name in numbers)], axis=1)

    scaler = StandardScaler().fit(encode(train))
    return (
        scaler.transform(encode(train)).astype(np.float32),
        scaler.transform(encode(test)).astype(np.float32),
    )
