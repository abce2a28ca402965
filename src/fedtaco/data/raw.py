"""From files in the publishers' layouts to compact arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.data import adult, formats
from fedtaco.data.catalog import SHAKESPEARE_LETTERS, DatasetInfo
from fedtaco.errors import InvalidInput

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Compact inputs and labels, and for natural datasets which user each sample belongs to."""

    x: Array
    y: Array
    user: Array | None = None


@dataclass(frozen=True)
class Splits:
    """Training and test samples."""

    train: Split
    test: Split


def read_files(info: DatasetInfo, folder: Path) -> Splits:
    """Read a dataset from the folder that holds its files, and check what was published of it."""
    splits = _READERS[info.name](folder)
    for part, split, count in (("training", splits.train, info.train), ("test", splits.test, info.test)):
        if split.x.shape != (len(split.y), *info.shape):
            raise InvalidInput(
                f"{folder} holds {part} inputs of shape {split.x.shape} and {len(split.y)} labels; {info.title} has a "
                f"label for each input of shape {info.shape}. A file is another one than its name says."
            )
        if count is not None and len(split.y) != count:
            raise InvalidInput(
                f"{folder} holds {len(split.y)} {part} samples of {info.title}; {count} were published. "
                "A file is incomplete: get it again."
            )
    return splits


def _idx(folder: Path) -> Splits:
    def split(part: str) -> Split:
        images = formats.read_idx(folder / f"{part}-images-idx3-ubyte.gz")
        return Split(images[:, None], formats.read_idx(folder / f"{part}-labels-idx1-ubyte.gz"))

    return Splits(split("train"), split("t10k"))


def _joined(parts: Iterable[tuple[Array, Array]]) -> Split:
    images, labels = zip(*parts, strict=True)
    return Split(np.concatenate(images), np.concatenate(labels))


def _cifar10(folder: Path) -> Splits:
    train = _joined(formats.read_cifar(folder / f"data_batch_{number}", "labels") for number in range(1, 6))
    return Splits(train, Split(*formats.read_cifar(folder / "test_batch", "labels")))


def _cifar100(folder: Path) -> Splits:
    train, test = (Split(*formats.read_cifar(folder / part, "fine_labels")) for part in ("train", "test"))
    return Splits(train, test)


def _svhn(folder: Path) -> Splits:
    train, test = (Split(*formats.read_svhn(folder / f"{part}_32x32.mat")) for part in ("train", "test"))
    return Splits(train, test)


def _adult(features: Callable[[adult.Columns, adult.Columns], tuple[Array, Array]]) -> Callable[[Path], Splits]:
    def read(folder: Path) -> Splits:
        train, test = formats.read_adult(folder / "adult.data"), formats.read_adult(folder / "adult.test")
        x_train, x_test = features(train, test)
        return Splits(Split(x_train, adult.labels(train)), Split(x_test, adult.labels(test)))

    return read


def _leaf(encode: Callable[[list[Any], list[Any]], tuple[Array, Array]]) -> Callable[[Path], Splits]:
    def read(folder: Path) -> Splits:
        numbers: dict[str, int] = {}

        def split(part: str) -> Split:
            x, y, users = [], [], []
            for user, inputs, targets in formats.read_leaf(folder / part):
                try:
                    encoded = encode(inputs, targets)
                except InvalidInput:
                    raise
                except (ValueError, TypeError, IndexError) as error:
                    raise InvalidInput(f"The samples of '{user}' in {folder / part} are damaged: {error}.") from error
                x.append(encoded[0])
                y.append(encoded[1])
                users.append(np.full(len(targets), numbers.setdefault(user, len(numbers)), np.int32))
            if not x:
                raise formats.broken(folder / part, "at least one LEAF JSON file")
            return Split(np.concatenate(x), np.concatenate(y), np.concatenate(users))

        return Splits(split("train"), split("test"))

    return read


def encode_femnist(inputs: list[Any], targets: list[Any]) -> tuple[Array, Array]:
    """LEAF's 784 numbers from 0 (ink) to 1 (paper), as bytes."""
    pixels = np.asarray(inputs, np.float32).reshape(-1, 1, 28, 28)
    return np.rint(pixels * 255).astype(np.uint8), np.asarray(targets, np.uint8)


_CODES = np.zeros(256, np.uint8)
_CODES[np.frombuffer(SHAKESPEARE_LETTERS.encode("latin-1"), np.uint8)] = np.arange(len(SHAKESPEARE_LETTERS))


def encode_text(inputs: list[str], targets: list[str]) -> tuple[Array, Array]:
    """80-character strings and the character after each, as positions in LEAF's alphabet."""
    text, width = "".join([*inputs, *targets]), len(inputs[0])
    strangers = set(text) - set(SHAKESPEARE_LETTERS)
    if strangers:
        raise InvalidInput(f"The text holds {min(strangers)!r}, which is not among LEAF's 80 letters.")
    if any(len(window) != width for window in inputs):
        raise InvalidInput(f"The windows of text differ in length; each must have {width} letters.")
    codes = _CODES[np.frombuffer(text.encode("latin-1"), np.uint8)]
    return codes[: len(inputs) * width].reshape(len(inputs), width), codes[len(inputs) * width :]


def _femnist_digits(folder: Path) -> Splits:
    whole = _leaf(encode_femnist)(folder)
    return Splits(only_digits(whole.train), only_digits(whole.test))


def only_digits(split: Split) -> Split:
    """The samples of FEMNIST's first ten classes."""
    chosen = split.y < 10
    return Split(split.x[chosen], split.y[chosen], None if split.user is None else split.user[chosen])


_READERS: dict[str, Callable[[Path], Splits]] = {
    "mnist": _idx,
    "fmnist": _idx,
    "femnist": _leaf(encode_femnist),
    "femnist:digits": _femnist_digits,
    "svhn": _svhn,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "adult": _adult(adult.binary_features),
    "adult:standardized": _adult(adult.standardized_features),
    "shakespeare": _leaf(encode_text),
}
