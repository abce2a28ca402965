"""The file format of CIFAR-10 and CIFAR-100: pickled batches, read by an unpickler that cannot run code."""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.data.sources.base import RawDataset, RawSplit, damaged_file
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
