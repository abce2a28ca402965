"""SVHN: digits of house numbers from Street View, 32 × 32 colour pixels."""

from pathlib import Path

import numpy as np

from fedtaco.data.published_files import SLACK, expecting, read_bytes
from fedtaco.data.sources.base import DatasetInfo, HubColumns, RawDataset, RawSplit
from fedtaco.data.sources.images import ImageSource
from fedtaco.data.sources.matlab import read_arrays


class Svhn(ImageSource):
    """The cropped digits, one MATLAB file per split."""

    def read(self, folder: Path) -> RawDataset:
        paths = (folder / name for name in self.info.files)
        return RawDataset(*map(read_digits, paths, self.info.sample_limits()))


def read_digits(path: Path, limit: int) -> RawSplit:
    """Read one of the publisher's files, of at most ``limit`` images, in which the digit 0 has the label 10."""
    size = limit * 3 * 32 * 32 + SLACK
    with expecting(path, "a MATLAB file with 'X' (32, 32, 3, n) of bytes and 'y' (n, 1) from 1 to 10"):
        arrays = read_arrays(read_bytes(path, 2 * size), ("X", "y"), size)
        images, labels = arrays["X"], arrays["y"]
        if images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3) or labels.shape != (images.shape[-1], 1):
            raise ValueError(f"X is {images.dtype} {images.shape}, y is {labels.shape}")
        if not np.isin(labels, np.arange(1, 11)).all():
            raise ValueError("a label is not a whole number from 1 to 10")
        return RawSplit(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.reshape(-1).astype(np.uint8) % 10)


SVHN = Svhn(
    DatasetInfo(
        name="svhn",
        title="Street View House Numbers, cropped",
        shape=(3, 32, 32),
        classes=10,
        train=73257,
        test=26032,
        model="cnn",
        partition="groups",
        folders=("svhn",),
        files=("train_32x32.mat", "test_32x32.mat"),
        hub="ufldl-stanford/svhn",
        licence="non-commercial use",
        citation="Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011",
    ),
    HubColumns("image", "label", config="cropped_digits"),
)
