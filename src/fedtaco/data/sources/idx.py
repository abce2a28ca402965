"""Datasets in the IDX format of MNIST."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from fedtaco.data.sources.base import Array, RawDataset, RawSplit, damaged_file
from fedtaco.data.sources.images import ImageSource

IDX_FILES = tuple(f"{split}-{kind}-ubyte.gz" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


class IdxSource(ImageSource):
    """Greyscale images in four IDX files: images and labels of each split."""

    def read(self, folder: Path) -> RawDataset:
        x_train, y_train, x_test, y_test = (read_idx(folder / name) for name in IDX_FILES)
        return RawDataset(RawSplit(x_train[:, None], y_train), RawSplit(x_test[:, None], y_test))


def read_idx(path: Path) -> Array:
    """Read an IDX file of unsigned bytes, compressed with gzip if its name ends in ``.gz``."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise damaged_file(path, "a complete gzip file") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise damaged_file(path, "an IDX file of bytes")
    header = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:header], ">u4").astype(int)
    if len(content) != header + shape.prod():
        raise damaged_file(path, f"{' × '.join(map(str, shape))} bytes after the header")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
