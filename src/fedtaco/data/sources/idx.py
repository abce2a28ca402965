"""Datasets in the IDX format of MNIST."""

import math
from pathlib import Path

import numpy as np

from fedtaco.data.published_files import SLACK, expecting, inflate, read_bytes
from fedtaco.data.sources.base import Array, RawDataset, RawSplit
from fedtaco.data.sources.images import ImageSource

IDX_FILES = tuple(f"{split}-{kind}-ubyte.gz" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


class IdxSource(ImageSource):
    """Greyscale images in four IDX files: images and labels of each split."""

    def read(self, folder: Path) -> RawDataset:
        paths = [folder / name for name in IDX_FILES]
        train, test = (
            RawSplit(read_idx(images, self.info.shape[1:], limit)[:, None], read_idx(labels, (), limit))
            for images, labels, limit in zip(paths[::2], paths[1::2], self.info.sample_limits(), strict=True)
        )
        return RawDataset(train, test)


def read_idx(path: Path, item_shape: tuple[int, ...], limit: int) -> Array:
    """Read a gzipped IDX file of at most ``limit`` items, each of ``item_shape`` unsigned bytes."""
    header_size, item_size = 8 + 4 * len(item_shape), math.prod(item_shape)
    with expecting(path, "a complete gzip file"):
        size = header_size + limit * item_size
        content = inflate(read_bytes(path, size + SLACK), size)
    with expecting(path, f"an IDX file of bytes with shape {' × '.join(['n', *map(str, item_shape)])}"):
        count, *shape = np.frombuffer(content, ">u4", count=header_size // 4 - 1, offset=4).tolist()
        if content[:4] != bytes([0, 0, 8, 1 + len(item_shape)]) or tuple(shape) != item_shape:
            raise ValueError("its header differs")
        if len(content) != header_size + count * item_size:
            raise ValueError(f"{len(content) - header_size:,} bytes follow the header, which announces {count:,} items")
    return np.frombuffer(content, np.uint8, offset=header_size).reshape(-1, *item_shape)
