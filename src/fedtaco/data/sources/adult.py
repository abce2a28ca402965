"""Adult (census income): whether a person earns more than 50K, from 123 binary or 108 standardised features."""

import csv
import io
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.data.sources.base import DatasetInfo, Progress, RawDataset, RawSplit, Source, damaged_file, fetch_error
from fedtaco.records.files import replacing

Features = npt.NDArray[Any]
Table = dict[str, npt.NDArray[Any]]
"""Columns of strings by name."""

COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)
BINNED = ("age", "fnlwgt", "education-num", "hours-per-week")
"""Numeric columns that the binary features cut into five bins."""
MOSTLY_ZERO = ("capital-gain", "capital-loss")
"""Numeric columns of which the binary features record only whether they are above zero."""
CATEGORICAL = tuple(name for name in COLUMNS if name not in (*BINNED, *MOSTLY_ZERO, "income"))


@dataclass(frozen=True)
class Adult(Source):
    """UCI's two CSV files; ``features`` encodes the training and the test table."""

    features: Callable[[Table, Table], tuple[Features, Features]]

    def read(self, folder: Path) -> RawDataset:
        tables = [read_table(folder / name) for name in self.info.files]
        labels = ((table["income"] == ">50K").astype(np.uint8) for table in tables)
        return RawDataset(*map(RawSplit, self.features(*tables), labels))

    def fetch(self, root: Path, address: str, progress: Progress) -> Path:
        """Unpack UCI's archive into the publisher's layout; an incomplete download leaves nothing behind."""
        try:
            with urllib.request.urlopen(address, timeout=60) as response:
                archive = zipfile.ZipFile(io.BytesIO(response.read()))
            files = {name: archive.read(name) for name in self.info.files}
        except Exception as error:  # a damaged archive may raise almost anything
            raise fetch_error("Adult", address, error) from error
        target = root / self.info.folders[0]
        target.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with replacing(target / name) as temporary:
                temporary.write_bytes(content)
        return target


def read_table(path: Path) -> Table:
    """Read one of the publisher's CSV files; lines that begin with ``|`` are comments."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "|"]
    rows = list(csv.reader(lines, skipinitialspace=True))
    if not rows or any(len(row) != len(COLUMNS) for row in rows):
        raise damaged_file(path, f"{len(COLUMNS)} columns in each line")
    return {name: np.char.rstrip(column, ".") for name, column in zip(COLUMNS, np.array(rows).T, strict=True)}


def binary_features(train: Table, test: Table) -> tuple[Features, Features]:
    """Return 123 binary features with the same counts as LIBSVM's a9a: 99 categories and 24 bins.

    Unknown entries ("?") have no column. Four numeric columns are cut into five bins each at the training
    quantiles; for capital gain and loss there is one column for zero and one for other values.
    """
    categories = {name: np.setdiff1d(train[name], "?") for name in CATEGORICAL}
    cuts = {name: np.quantile(train[name].astype(float), (0.2, 0.4, 0.6, 0.8)) for name in BINNED}

    def encode(table: Table) -> Features:
        parts = [table[name][:, None] == values for name, values in categories.items()]
        parts += [np.searchsorted(cuts[name], table[name].astype(float))[:, None] == np.arange(5) for name in BINNED]
        parts += [(table[name].astype(float) > 0)[:, None] == np.array([False, True]) for name in MOSTLY_ZERO]
        return np.concatenate(parts, axis=1).astype(np.uint8)

    return encode(train), encode(test)


def standardized_features(train: Table, test: Table) -> tuple[Features, Features]:
    """Return 108 features with mean 0 and standard deviation 1: one per category, "?" included, and six numbers."""
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    def categories(table: Table) -> Features:
        return np.stack([table[name] for name in CATEGORICAL], axis=1)

    def encode(table: Table) -> Features:
        numbers = (table[name].astype(float)[:, None] for name in (*BINNED, *MOSTLY_ZERO))
        return np.concatenate([encoder.transform(categories(table)), *numbers], axis=1)

    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(categories(train))
    scaler = StandardScaler().fit(encode(train))
    x_train, x_test = (scaler.transform(encode(table)).astype(np.float32) for table in (train, test))
    return x_train, x_test


_INFO = DatasetInfo(
    name="adult",
    title="Adult, 123 binary features",
    shape=(123,),
    classes=2,
    train=32561,
    test=16281,
    model="mlp",
    partition="dirichlet:0.5",
    folders=("adult",),
    files=("adult.data", "adult.test"),
    hub="https://archive.ics.uci.edu/static/public/2/adult.zip",
    licence="CC BY 4.0",
    citation="Becker and Kohavi, Adult, UCI Machine Learning Repository, 1996",
)
_STANDARDIZED_INFO = replace(_INFO, name="adult:standardized", title="Adult, 108 standardised features", shape=(108,))

ADULT = Adult(_INFO, binary_features)
ADULT_STANDARDIZED = Adult(_STANDARDIZED_INFO, standardized_features)
