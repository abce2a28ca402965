"""CIFAR-10 and CIFAR-100: photographs of ten or a hundred kinds of objects, 32 × 32 colour pixels.

The publisher's files are pickled; they are read by an unpickler that cannot run code.
"""

import io
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.data.sources.base import DatasetInfo, HubColumns, RawDataset, RawSplit, damaged_file
from fedtaco.data.sources.images import ImageSource


@dataclass(frozen=True)
class CifarSource(ImageSource):
    """Colour images of 32 × 32 pixels; the last of ``info.files`` is the test split, the others are for training."""

    label_key: str

    def read(self, folder: Path) -> RawDataset:
        *train, test = (read_batch(folder / name, self.label_key) for name in self.info.files)
        return RawDataset(RawSplit.concatenate(train), test)


class ArrayUnpickler(pickle.Unpickler):
    """Unpickle NumPy arrays and plain data, and refuse everything else so that no code can run."""

    ALLOWED = frozenset(
        (module, name)
        for module in ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
        for name in ("_reconstruct", "ndarray", "dtype")
    ) | {("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return super().find_class(module, name)


def read_batch(path: Path, label_key: str) -> RawSplit:
    """Read the images (n, 3, 32, 32) and labels of one CIFAR file."""
    try:
        record = ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        images, labels = record[b"data"], np.array(record[label_key.encode()], np.uint8)
        return RawSplit(images.reshape(len(labels), 3, 32, 32), labels)
    except Exception as error:
        raise damaged_file(path, f"a CIFAR batch with 'data' and '{label_key}'") from error


_INFO = DatasetInfo(
    name="cifar10",
    title="CIFAR-10",
    shape=(3, 32, 32),
    classes=10,
    train=50000,
    test=10000,
    model="cnn",
    partition="groups",
    folders=("cifar-10-batches-py",),
    files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    hub="uoft-cs/cifar10",
    citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009",
)
_FINE_INFO = replace(
    _INFO,
    name="cifar100",
    title="CIFAR-100, fine labels",
    classes=100,
    model="resnet18",
    partition="dirichlet:0.5",
    folders=("cifar-100-python",),
    files=("train", "test"),
    hub="uoft-cs/cifar100",
)

CIFAR10 = CifarSource(_INFO, HubColumns("img", "label"), label_key="labels")
CIFAR100 = CifarSource(_FINE_INFO, HubColumns("img", "fine_label"), label_key="fine_labels")
