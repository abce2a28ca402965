"""Adult (census income): whether a person earns more than 50K, from 123 binary or 108 standardised features."""

import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.data.published_files import at_most, expecting, read_bytes, unzip
from fedtaco.data.sources.base import DatasetInfo, Progress, RawDataset, RawSplit, Source, fetch_error
from fedtaco.files import replacing, writing

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
EXPECTED = f"the {len(COLUMNS)} columns of Adult in each line"
MAX_SIZE = 5_000_000
"""Bytes of a file or of the archive; the largest published file has 4 MB."""
MAX_CELL_LENGTH = 32
"""Characters; the longest category has 26."""


@dataclass(frozen=True)
class Adult(Source):
    """Reads UCI's two CSV files; ``features`` encodes the training table and the test table."""

    features: Callable[[Table, Table], tuple[Features, Features]]

    def read(self, folder: Path) -> RawDataset:
        return self.encode(*(read_table(folder / name) for name in self.info.files))

    def encode(self, train: Table, test: Table) -> RawDataset:
        """Return the features and labels of both tables."""
        labels = ((table["income"] == ">50K").astype(np.uint8) for table in (train, test))
        return RawDataset(*map(RawSplit, self.features(train, test), labels))

    def fetch(self, root: Path, address: str, progress: Progress) -> Path:
        """Download UCI's archive, check it and unpack its files; an invalid download stores nothing."""
        try:
            with urllib.request.urlopen(address, timeout=60) as response:
                archive = at_most(MAX_SIZE, response.read(MAX_SIZE + 1))
            files = {name: unzip(archive, name, MAX_SIZE) for name in self.info.files}
        except Exception as error:  # a damaged archive may raise almost anything
            raise fetch_error("Adult", address, error) from error
        advice = "Nothing was saved; try again later."
        with expecting(address, EXPECTED, advice):
            tables = map(parse_table, files.values())
            self.check(self.encode(*tables), address, advice)
        target = root / self.info.folders[0]
        with writing(target):
            target.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                with replacing(target / name) as temporary:
                    temporary.write_bytes(content)
        return target


def read_table(path: Path) -> Table:
    """Read one of the publisher's CSV files."""
    with expecting(path, EXPECTED):
        return parse_table(read_bytes(path, MAX_SIZE))


def parse_table(content: bytes) -> Table:
    """Parse one of the publisher's CSV files, in which lines that begin with ``|`` are comments."""
    lines = [line for line in content.decode("ascii").splitlines() if line.strip() and line[0] != "|"]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    if not rows or any(len(row) != len(COLUMNS) or max(map(len, row)) > MAX_CELL_LENGTH for row in rows):
        raise ValueError("a line has another number of columns or an overlong value")
    table = {name: np.char.rstrip(column, ".") for name, column in zip(COLUMNS, np.array(rows).T, strict=True)}
    for name in (*BINNED, *MOSTLY_ZERO):
        if not np.char.isdecimal(table[name]).all():
            raise ValueError(f"a value of {name} is not a whole number")
    if not np.isin(table["income"], ("<=50K", ">50K")).all():
        raise ValueError("a value of income is neither <=50K nor >50K")
    return table


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
    """Return 108 features with mean 0 and standard deviation 1: one per category, "?" included, and six numeric."""
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
_STANDARDIZED_INFO = replace(
    _INFO, name="adult:standardized", title="Adult, 108 standardised features", shape=(108,), dtype="float32"
)

ADULT = Adult(_INFO, binary_features)
ADULT_STANDARDIZED = Adult(_STANDARDIZED_INFO, standardized_features)
