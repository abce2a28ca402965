"""The file format of CIFAR-10 and CIFAR-100: pickled batches, which are read without the pickle module."""

from dataclasses import dataclass
from pathlib import Path

from fedtaco.data.published_files import SLACK, byte_labels, expecting, read_bytes
from fedtaco.data.sources.base import RawDataset, RawSplit
from fedtaco.data.sources.cifar_pickle import read_record, to_matrix
from fedtaco.data.sources.images import ImageSource

BYTES_PER_IMAGE = 2 * 3 * 32 * 32 + 256
"""Maximum size of an image with its labels and file name; Python 3's protocol 2 takes two bytes for some pixels."""
INSTRUCTIONS_PER_IMAGE = 20
"""Maximum number of instructions of the pickle for the labels and the file name of an image."""


@dataclass(frozen=True)
class CifarSource(ImageSource):
    """Colour images of 32 × 32 pixels; the last of ``info.files`` is the test split, the others are for training."""

    label_key: str

    def read(self, folder: Path) -> RawDataset:
        *train, test = (folder / name for name in self.info.files)
        train_limit, test_limit = self.info.sample_limits()
        batches = (read_batch(path, self.label_key, train_limit // len(train)) for path in train)
        return RawDataset(RawSplit.concatenate(batches), read_batch(test, self.label_key, test_limit))


def read_batch(path: Path, label_key: str, limit: int) -> RawSplit:
    """Read the images (n, 3, 32, 32) and labels of one CIFAR file with at most ``limit`` images."""
    with expecting(path, f"a CIFAR batch with 'data' and '{label_key}'"):
        content = read_bytes(path, limit * BYTES_PER_IMAGE + SLACK)
        record = read_record(content, limit * INSTRUCTIONS_PER_IMAGE + 1000)
        pixels, labels = to_matrix(record["data"]), byte_labels(record[label_key])
        return RawSplit(pixels.reshape(len(labels), 3, 32, 32), labels)
