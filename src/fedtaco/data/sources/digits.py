"""Handwritten digits: 8 × 8 grey pixels, included in scikit-learn."""

from pathlib import Path

import numpy as np
import torch

from fedtaco.data.cache import Facts
from fedtaco.data.sources.base import Array, DatasetInfo, LoadedDataset, Progress, RawDataset, RawSplit, Source
from fedtaco.data.sources.images import Standardize
from fedtaco.errors import InvalidInput


class Digits(Source):
    """The digits of scikit-learn; a fifth of them, stratified by class, is the test split."""

    def load(self, root: Path) -> LoadedDataset:
        raw = self.read(root)  # reading is fast enough without a cache
        return self.to_loaded(raw, self.statistics(raw.train.x))

    def read(self, folder: Path) -> RawDataset:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        x, y = digits.images.astype(np.uint8)[:, None], digits.target.astype(np.uint8)
        x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)
        return RawDataset(RawSplit(x_train, y_train), RawSplit(x_test, y_test))

    def statistics(self, x: Array) -> Facts:
        pixels = torch.from_numpy(x) / 16
        return {"mean": [float(pixels.mean())], "deviation": [float(pixels.std())]}

    def prepare(self, facts: Facts) -> Standardize:
        return Standardize(1 / 16, tuple(facts["mean"]), tuple(facts["deviation"]))

    def fetch(self, root: Path, address: str, progress: Progress) -> Path:
        raise InvalidInput("digits comes with scikit-learn; there is nothing to fetch.")


DIGITS = Digits(
    DatasetInfo(
        name="digits",
        title="Handwritten digits of scikit-learn (embedded)",
        shape=(1, 8, 8),
        classes=10,
        train=1437,
        test=360,
        model="mlp:64-32",
        partition="groups",
        licence="CC BY 4.0",
        citation="Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998",
    )
)
