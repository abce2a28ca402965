"""SVHN: digits of house numbers from Street View, 32 × 32 colour pixels."""

from pathlib import Path

import numpy as np

from fedtaco.data.sources.base import DatasetInfo, HubColumns, RawDataset, RawSplit, damaged_file
from fedtaco.data.sources.images import ImageSource


class Svhn(ImageSource):
    """The cropped digits, one MATLAB file per split."""

    def read(self, folder: Path) -> RawDataset:
        return RawDataset(*(read_matlab(folder / name) for name in self.info.files))


def read_matlab(path: Path) -> RawSplit:
    """Read one of the publisher's files, in which the digit 0 has the label 10."""
    from scipy.io import loadmat

    try:
        record = loadmat(path)
        images, labels = record["X"].transpose(3, 2, 0, 1), record["y"].reshape(-1) % 10
        return RawSplit(np.ascontiguousarray(images), labels.astype(np.uint8))
    except Exception as error:
        raise damaged_file(path, "a MATLAB file with 'X' (32, 32, 3, n) and 'y'") from error


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
