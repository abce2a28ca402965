"""Datasets from the Hugging Face hub (and adult from UCI), checked by their counts and cached.

``source`` may be a local folder in the hub's own parquet layout, so that all of this works offline.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.data.catalog import DatasetInfo
from fedtaco.data.raw import Split, Splits, encode_text, only_digits
from fedtaco.data.store import cache_fetched, data_folder
from fedtaco.errors import InvalidInput

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Called with a part's name, how many of its samples are done, and how many there are."""

REMEDY = "Check the connection, or name a local copy with --from."
BATCH = 1000
TEST_SHARE = 0.1
WINDOW = 80
"""Letters in a window of text, and the gap between a role's training and test windows."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a hub dataset hold what."""

    x: str
    y: str
    user: str = ""
    config: str | None = None


COLUMNS = {
    "mnist": Columns("image", "label"),
    "fmnist": Columns("image", "label"),
    "svhn": Columns("image", "label", config="cropped_digits"),
    "cifar10": Columns("img", "label"),
    "cifar100": Columns("img", "fine_label"),
    "femnist": Columns("image", "character", "writer_id"),
    "femnist:digits": Columns("image", "character", "writer_id"),
    "shakespeare": Columns("x", "y", "character_id"),
}


def fetch(info: DatasetInfo, data_dir: str | Path | None, source: str | None, progress: Progress) -> Path:
    """Fetch a dataset into the data folder; where it is then."""
    root = data_folder(data_dir)
    if info.name == "digits":
        raise InvalidInput("digits comes with scikit-learn; there is nothing to fetch.")
    if info.name.startswith("adult"):
        return _fetch_adult(source or info.hub, root)
    splits = _read_hub(info, source or info.hub, progress)
    for part, split, count in (("training", splits.train, info.train), ("test", splits.test, info.test)):
        if count is not None and len(split.y) != count:
            raise InvalidInput(
                f"{source or info.hub} gave {len(split.y)} {part} samples of {info.title} instead of {count}; "
                "nothing was kept. Try again later."
            )
    cache_fetched(info, root, splits)
    return root / "cache"


def _read_hub(info: DatasetInfo, source: str, progress: Progress) -> Splits:
    try:
        import datasets
    except ImportError as error:
        raise InvalidInput("Fetching from the hub needs an extra: pip install 'fedtaco[hub]'.") from error
    columns = COLUMNS[info.name]
    config = None if Path(source).is_dir() else columns.config
    if source != info.hub and ("/" not in source or Path(source).is_absolute()) and not Path(source).is_dir():
        raise InvalidInput(f"{source} is no folder; name one with parquet files in the layout of {info.hub}.")
    try:
        found = datasets.load_dataset(source, config)
    except Exception as error:
        raise InvalidInput(f"{info.title} could not be fetched from {source}: {_first_line(error)} {REMEDY}") from error
    parts = ("train",) if columns.user else ("train", "test")
    wanted = {columns.x, columns.y, columns.user} - {""}
    for part in parts:
        if part not in found or not wanted <= set(found[part].column_names):
            names = ", ".join(sorted(wanted))
            raise InvalidInput(f"{source} is not {info.title}: expected a part '{part}' with the columns {names}.")
    encode = _letters if info.name == "shakespeare" else _pixels(info.shape)
    splits = [_read_part(found[part], columns, encode, lambda *n, part=part: progress(part, *n)) for part in parts]
    if len(splits) == 2:
        return Splits(*splits)
    whole = only_digits(splits[0]) if info.name == "femnist:digits" else splits[0]
    return _split_by_user(whole, gap=WINDOW if info.name == "shakespeare" else 0)


Encode = Callable[[list[Any], list[Any]], tuple[Array, Array]]


def _pixels(shape: tuple[int, ...]) -> Encode:
    mode = "L" if shape[0] == 1 else "RGB"

    def encode(images: list[Any], labels: list[Any]) -> tuple[Array, Array]:
        pixels = np.stack([np.asarray(image.convert(mode), np.uint8) for image in images])
        pixels = pixels[:, None] if mode == "L" else pixels.transpose(0, 3, 1, 2)
        return pixels, np.asarray(labels, np.uint8)

    return encode


def _letters(texts: list[Any], targets: list[Any]) -> tuple[Array, Array]:
    return encode_text(texts, targets)


def _read_part(part: Any, columns: Columns, encode: Encode, progress: Callable[[int, int], None]) -> Split:
    x, y, users = [], [], []
    numbers: dict[str, int] = {}
    for start in range(0, len(part), BATCH):
        rows = part[start : start + BATCH]
        encoded = encode(rows[columns.x], rows[columns.y])
        x.append(encoded[0])
        y.append(encoded[1])
        if columns.user:
            users.append(np.array([numbers.setdefault(user, len(numbers)) for user in rows[columns.user]], np.int32))
        progress(min(start + BATCH, len(part)), len(part))
    return Split(np.concatenate(x), np.concatenate(y), np.concatenate(users) if users else None)


def _split_by_user(whole: Split, gap: int) -> Splits:
    """The last tenth of each user's samples for testing, ``gap`` samples after the training part."""
    assert whole.user is not None
    order = np.argsort(whole.user, kind="stable")
    ends = np.cumsum(np.bincount(whole.user))
    train, test = [], []
    for own in np.split(order, ends[:-1]):
        cut = len(own) - max(1, round(TEST_SHARE * len(own))) if len(own) > 1 else len(own)
        train.append(own[: max(1, cut - gap)])
        test.append(own[cut:])

    def take(parts: list[Array]) -> Split:
        chosen = np.concatenate(parts)
        assert whole.user is not None
        return Split(whole.x[chosen], whole.y[chosen], whole.user[chosen])

    return Splits(take(train), take(test))


def _fetch_adult(source: str, root: Path) -> Path:
    """UCI's archive, unpacked into the publisher's layout; nothing is left of one that broke off."""
    try:
        with urllib.request.urlopen(source, timeout=60) as answer:
            content = answer.read()
        archive = zipfile.ZipFile(io.BytesIO(content))
        files = {name: archive.read(name) for name in ("adult.data", "adult.test")}
    except (OSError, ValueError, KeyError, HTTPException, zipfile.BadZipFile, zlib.error) as error:
        raise InvalidInput(f"Adult could not be fetched from {source}: {_first_line(error)} {REMEDY}") from error
    root.mkdir(parents=True, exist_ok=True)
    target = root / "adult"
    with tempfile.TemporaryDirectory(dir=root) as workplace:
        for name, text in files.items():
            (Path(workplace) / name).write_bytes(text)
        target.mkdir(exist_ok=True)
        for name in files:
            shutil.move(Path(workplace) / name, target / name)
    return target


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".") + "."


def hub_dataset_arrays(dataset: Any) -> tuple[Array, Array]:
    """Inputs and labels of a ``datasets.Dataset`` with two columns, images as bytes (n, channels, height, width)."""
    if len(dataset.column_names) != 2:
        raise InvalidInput(
            f"The dataset has the columns {', '.join(dataset.column_names)}; name the input and the label with "
            "dataset.select_columns([input, label])."
        )
    first, second = dataset.column_names
    x, y = dataset[first][:], np.asarray(dataset[second][:])
    if hasattr(x[0], "convert"):
        pixels = np.stack([np.asarray(image) for image in x])
        return (pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)), y
    inputs = np.asarray(x)
    return (inputs.astype(np.float32) if inputs.dtype == np.float64 else inputs), y
