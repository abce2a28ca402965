"""FEMNIST of LEAF: handwritten characters by writer, 28 × 28 grey pixels; all 62 classes or the ten digits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.data.published_files import byte_labels
from fedtaco.data.sources.base import Array, DatasetInfo, HubColumns, RawDataset, RawSplit
from fedtaco.data.sources.images import ImageSource
from fedtaco.data.sources.leaf import read_leaf, split_by_user


@dataclass(frozen=True)
class Femnist(ImageSource):
    """Digits, upper-case letters and lower-case letters, or only the digits, which are the first ten classes."""

    digits_only: bool = False

    def select(self, split: RawSplit) -> RawSplit:
        """Return the samples that belong to this variant."""
        return split.select(split.y < 10) if self.digits_only else split

    def read(self, folder: Path) -> RawDataset:
        whole = read_leaf(folder, encode_pixels)
        return RawDataset(self.select(whole.train), self.select(whole.test))

    def combine_hub_splits(self, splits: Sequence[RawSplit]) -> RawDataset:
        return split_by_user(self.select(splits[0]))


def encode_pixels(inputs: list[Any], targets: list[Any]) -> tuple[Array, Array]:
    """Convert LEAF's 784 numbers per image, from 0 (ink) to 1 (paper), to bytes."""
    with np.errstate(over="ignore"):  # a number that is too large becomes infinite and is refused
        pixels = np.asarray(inputs, np.float32)
    if pixels.shape != (len(targets), 784) or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise ValueError("the images are not lists of 784 numbers from 0 to 1")
    return np.rint(pixels * 255).astype(np.uint8).reshape(-1, 1, 28, 28), byte_labels(targets)


_INFO = DatasetInfo(
    name="femnist",
    title="FEMNIST, 62 classes (LEAF)",
    shape=(1, 28, 28),
    classes=62,
    model="cnn",
    partition="dirichlet:0.2",
    folders=("femnist",),
    files=("train", "test"),
    hub="flwrlabs/femnist",
    citation="Caldas et al., LEAF: a benchmark for federated settings, 2018",
)
_DIGITS_INFO = replace(_INFO, name="femnist:digits", title="FEMNIST, the 10 digits", classes=10)
_COLUMNS = HubColumns("image", "character", "writer_id", splits=("train",))

FEMNIST = Femnist(_INFO, _COLUMNS)
FEMNIST_DIGITS = Femnist(_DIGITS_INFO, _COLUMNS, digits_only=True)
