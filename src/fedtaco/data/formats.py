"""Readers of the publishers' own file formats.

A file that is not what it should be is named in the error, with what was expected.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.errors import InvalidInput

Array = npt.NDArray[Any]


def broken(path: Path, expected: str) -> InvalidInput:
    return InvalidInput(f"{path} is damaged or not what its name says: expected {expected}. Get the file again.")


def read_idx(path: Path) -> Array:
    """An IDX file of unsigned bytes, gzipped or not (MNIST, Fashion-MNIST)."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise broken(path, "a whole gzip file") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise broken(path, "an IDX file of bytes")
    header = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:header], ">u4").astype(int)
    if len(content) != header + shape.prod():
        raise broken(path, f"{' × '.join(map(str, shape))} bytes after the header")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


class _ArraysOnly(pickle.Unpickler):
    """Unpickles numpy arrays and plain data and refuses everything else, so that no code can run."""

    ALLOWED = frozenset(
        (module, name)
        for module in ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
        for name in ("_reconstruct", "ndarray", "dtype")
    ) | {("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return super().find_class(module, name)


def read_cifar(path: Path, label_key: str) -> tuple[Array, Array]:
    """Images (n, 3, 32, 32) and labels of one of the publishers' CIFAR files."""
    try:
        record = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        images, labels = record[b"data"], np.array(record[label_key.encode()], np.uint8)
        return images.reshape(len(labels), 3, 32, 32), labels
    except Exception as error:
        raise broken(path, f"a CIFAR batch with 'data' and '{label_key}'") from error


def read_svhn(path: Path) -> tuple[Array, Array]:
    """Images (n, 3, 32, 32) and labels of a cropped SVHN file, where the digit 0 is written as 10."""
    from scipy.io import loadmat

    try:
        record = loadmat(path)
        images, labels = record["X"].transpose(3, 2, 0, 1), record["y"].reshape(-1) % 10
    except Exception as error:
        raise broken(path, "a MATLAB file with 'X' (32, 32, 3, n) and 'y'") from error
    if images.shape != (len(labels), 3, 32, 32):
        raise broken(path, "a MATLAB file with 'X' (32, 32, 3, n) and 'y'")
    return np.ascontiguousarray(images), labels.astype(np.uint8)


ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)


def read_adult(path: Path) -> dict[str, Array]:
    """The columns of a UCI adult file as strings; a leading ``|`` line is passed over."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "|"]
    rows = list(csv.reader(lines, skipinitialspace=True))
    if not rows or any(len(row) != len(ADULT_COLUMNS) for row in rows):
        raise broken(path, f"{len(ADULT_COLUMNS)} columns in each line")
    columns = np.array(rows).T
    return {name: np.char.rstrip(column, ".") for name, column in zip(ADULT_COLUMNS, columns, strict=True)}


def read_leaf(folder: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """User, inputs and targets of all JSON files that LEAF's preprocessing wrote into a folder."""
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_bytes())
            for user in record["users"]:
                yield user, record["user_data"][user]["x"], record["user_data"][user]["y"]
        except (ValueError, KeyError, TypeError) as error:
            raise broken(path, "LEAF's JSON with 'users' and 'user_data'") from error
