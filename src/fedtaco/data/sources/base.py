"""The base class of all datasets.

A :class:`Source` knows everything about one dataset: its facts (:class:`DatasetInfo`), how to read the publisher's
files, how to fetch them and how to prepare batches. Each dataset has a file of its own in this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedtaco.data.cache import Facts, Splits, cache_folder, expecting_cache, read_cache, write_cache
from fedtaco.data.published_files import expecting
from fedtaco.data.samples import Prepare, Samples, TensorSamples, class_labels
from fedtaco.errors import InvalidInput
from fedtaco.printable import printable

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Called with the name of a split, the number of samples read so far and the number of samples in the split."""
MAX_SAMPLES = 1_000_000
"""Number of samples that are read at most if the size of a split was not published."""


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a dataset that are known before it is loaded."""

    name: str
    title: str
    shape: tuple[int, ...]
    """Shape of one input."""
    classes: int
    model: str
    """Default model."""
    partition: str
    """Default partition."""
    train: int | None = None
    """Number of training samples as published; ``None`` if it depends on the preprocessing."""
    test: int | None = None
    """Number of test samples as published; ``None`` if it depends on the preprocessing."""
    folders: tuple[str, ...] = ()
    """Folders to look for the files in, relative to the data folder or absolute; none for an embedded dataset."""
    files: tuple[str, ...] = ()
    """Files and subfolders that must exist in one of the folders."""
    hub: str = ""
    """Address that ``fedtaco data fetch`` downloads from: a repository on the Hugging Face hub, or a URL."""
    licence: str = "none stated"
    citation: str = ""
    dtype: str = "uint8"
    """Type of the inputs as stored."""

    def sample_limits(self) -> tuple[int, int]:
        """Return how many training and test samples a file may contain at most."""
        return self.train or MAX_SAMPLES, self.test or MAX_SAMPLES


@dataclass(frozen=True)
class RawSplit:
    """The compact inputs and labels of one split and, if known, the user to whom each sample belongs."""

    x: Array
    y: Array
    user: Array | None = None

    def select(self, chosen: Array) -> RawSplit:
        """Return the samples chosen by an array of indices or of booleans."""
        return RawSplit(self.x[chosen], self.y[chosen], None if self.user is None else self.user[chosen])

    def tensors(self) -> dict[str, Tensor]:
        """Return the arrays by name as tensors."""
        arrays = {name: array for name, array in vars(self).items() if array is not None}
        return {name: torch.from_numpy(np.require(a, requirements=["C", "W"])) for name, a in arrays.items()}

    @classmethod
    def concatenate(cls, parts: Iterable[RawSplit]) -> RawSplit:
        """Concatenate parts; raise ValueError if there are none."""
        arrays = [(part.x, part.y, part.user) for part in parts]
        if not arrays:
            raise ValueError("there are no samples")
        x, y, user = zip(*arrays, strict=True)
        return cls(np.concatenate(x), np.concatenate(y), None if user[0] is None else np.concatenate(user))


@dataclass(frozen=True)
class RawDataset:
    """The training and the test split as compact arrays."""

    train: RawSplit
    test: RawSplit

    def tensors(self) -> Splits:
        """Return the tensors by split and name."""
        return {"train": self.train.tensors(), "test": self.test.tensors()}

    @classmethod
    def from_tensors(cls, tensors: Splits) -> RawDataset:
        """Return the splits with these tensors, which are given by split and name."""
        arrays = ({name: tensor.numpy() for name, tensor in tensors[split].items()} for split in ("train", "test"))
        return cls(*(RawSplit(split["x"], split["y"], split.get("user")) for split in arrays))


@dataclass(frozen=True)
class TaskData:
    """Training and test samples; ``users`` holds the user of each training sample if the dataset records it."""

    info: DatasetInfo
    train: Samples
    test: Samples | None
    users: Tensor | None = None

    @property
    def labels(self) -> npt.NDArray[np.int64] | None:
        """The class label of each training sample; ``None`` if the targets are not class labels."""
        return class_labels(self.train)


@dataclass(frozen=True)
class LoadedDataset(TaskData):
    """Training and test samples of a dataset that is known by name."""

    train: TensorSamples
    test: TensorSamples


@dataclass(frozen=True)
class HubColumns:
    """The splits of a dataset on the Hugging Face hub, and the columns that hold inputs, labels and users."""

    x: str
    y: str
    user: str | None = None
    config: str | None = None
    """Name of the configuration, if the repository has several."""
    splits: tuple[str, ...] = ("train", "test")


@dataclass(frozen=True)
class Source(ABC):
    """A dataset: its facts, and how it is read, fetched and prepared.

    A subclass implements :meth:`read` and :meth:`fetch`, and overrides :meth:`statistics` and :meth:`prepare` if its
    inputs need more than a conversion to floating point.
    """

    info: DatasetInfo

    @abstractmethod
    def read(self, folder: Path) -> RawDataset:
        """Read the publisher's files in ``folder``."""

    @abstractmethod
    def fetch(self, root: Path, address: str, progress: Progress) -> Path:
        """Download the dataset from ``address`` into the data folder ``root`` and return where it was stored."""

    @property
    def cache_name(self) -> str:
        """Name of the dataset in the cache, which variants with the same stored samples share."""
        return self.info.name

    def statistics(self, x: Array) -> Facts:
        """Return the statistics of the training inputs that :meth:`prepare` needs; they are cached."""
        return {}

    def prepare(self, facts: Facts) -> Prepare:
        """Return the function that turns a batch of compact inputs into inputs of the model."""
        return Tensor.float

    def find_folder(self, root: Path) -> Path | None:
        """Return the first folder that contains all files of the dataset, or ``None``."""
        folders = (root / name for name in self.info.folders)
        with expecting(root, "a data folder"):
            return next((place for place in folders if all((place / file).exists() for file in self.info.files)), None)

    def availability(self, root: Path) -> str:
        """Return ``embedded``, ``files`` or ``cached``, or a dash if the dataset has to be fetched first."""
        if not self.info.folders:
            return "embedded"
        with suppress(InvalidInput):  # what cannot be read is not available
            if self.find_folder(root) is not None:
                return "files"
            if self._load_cache(root) is not None:
                return "cached"
        return "–"

    def load(self, root: Path) -> LoadedDataset:
        """Load the dataset from its cache, or from its files if there is no valid cache or the files have changed."""
        folder = self.find_folder(root)
        if folder is None:
            cached = self._load_cache(root)
            if cached is None:
                raise self._not_found(root)
            return cached
        origin = self._fingerprint(folder)
        with suppress(InvalidInput):  # a damaged cache is written again
            if (cached := self._load_cache(root, origin)) is not None:
                return cached
        raw = self.read(folder)
        advice = "A file is incomplete or its content does not match its name: download it again."
        facts = {"origin": origin, **self.checked_statistics(raw, folder, advice)}
        with suppress(InvalidInput):  # if the cache cannot be written, the dataset is used without it
            write_cache(root, self.cache_name, raw.tensors(), facts)
            if (cached := self._load_cache(root, origin)) is not None:
                return cached
        return self.to_loaded(raw, facts)

    def to_loaded(self, raw: RawDataset, facts: Facts) -> LoadedDataset:
        """Return the dataset with these samples, which share memory with the arrays."""
        tensors, prepare = raw.tensors(), self.prepare(facts)
        train, test = (TensorSamples(tensors[split]["x"], tensors[split]["y"], prepare) for split in ("train", "test"))
        return LoadedDataset(self.info, train, test, tensors["train"].get("user"))

    def checked_statistics(self, raw: RawDataset, place: str | Path, advice: str) -> Facts:
        """Return the statistics of the training inputs; raise InvalidInput, with this advice, if a check fails."""
        self.check(raw, place, advice)
        with expecting(place, self.info.title, advice):
            statistics = self.statistics(raw.train.x)
            self.prepare(statistics)
        return statistics

    def check(self, raw: RawDataset, place: str | Path, advice: str) -> None:
        """Raise InvalidInput if a split is not as published; ``advice`` ends the message."""
        for kind, split, count in (("training", raw.train, self.info.train), ("test", raw.test, self.info.test)):
            for problem in self._problems(kind, split, count):
                raise InvalidInput(f"{place} holds {problem}. {advice}")

    def _problems(self, kind: str, split: RawSplit, count: int | None) -> Iterator[str]:
        """Yield what a split contains instead of what was published."""
        info, x, y, user = self.info, split.x, split.y, split.user
        if x.dtype != info.dtype:
            yield f"{kind} inputs of type {x.dtype}; those of {info.title} are {info.dtype}"
        if not _is_list_of_integers(y):
            yield f"{kind} labels of type {y.dtype} and shape {y.shape}; there must be one whole number per sample"
        if x.shape != (len(y), *info.shape):
            yield (
                f"{kind} inputs of shape {x.shape} and {len(y)} labels; {info.title} has one label per input of "
                f"shape {info.shape}"
            )
        if len(y) == 0 or (count is not None and len(y) != count):
            yield f"{len(y)} {kind} samples of {info.title}; {count or 'more'} were published"
        if y.min() < 0 or y.max() >= info.classes:
            yield f"{kind} labels from {y.min()} to {y.max()}; {info.title} has the labels 0 to {info.classes - 1}"
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            yield f"{kind} inputs that are not finite"
        if user is not None and (user.shape != y.shape or not _is_list_of_integers(user)):
            yield f"users of type {user.dtype} and shape {user.shape}; there must be one whole number per sample"

    def _load_cache(self, root: Path, origin: list[list[Any]] | None = None) -> LoadedDataset | None:
        """Return the cached dataset, or ``None`` if there is none or it was made from other files than ``origin``.

        Raise InvalidInput if the cache is damaged.
        """
        cached = read_cache(root, self.cache_name)
        if cached is None or (origin is not None and cached[1]["origin"] != origin):
            return None
        splits, facts = cached
        folder = cache_folder(root, self.cache_name)
        with expecting_cache(folder, self.info.name):
            raw = RawDataset.from_tensors(splits)
            self.check(raw, folder, "Fetch the dataset again.")
            return self.to_loaded(raw, facts)

    def _fingerprint(self, folder: Path) -> list[list[Any]]:
        """Return the name, size and modification time of every file, to detect later changes."""
        named = [folder / name for name in self.info.files]
        with expecting(folder, f"the files of {self.info.title}"):
            files = [file for path in named for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
            return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]

    def _not_found(self, root: Path) -> InvalidInput:
        info, places = self.info, " or ".join(str(root / folder) for folder in self.info.folders)
        return InvalidInput(
            f"{info.title} was not found in the data folder {root}. Fetch it with 'fedtaco data fetch {info.name}', or "
            f"put its files ({', '.join(info.files)}) into {places}. The setting data_dir, or the "
            "environment variable FEDTACO_DATA, names another data folder."
        )


def _is_list_of_integers(values: Array) -> bool:
    return values.ndim == 1 and values.dtype.kind in "iu" and np.can_cast(values.dtype, np.int64)


def fetch_error(title: str, address: str, error: Exception) -> InvalidInput:
    """Return the error for a failed download."""
    reason = printable((str(error).strip() or type(error).__name__).splitlines()[0]).rstrip(".")
    advice = "Check the connection, or give the address of a local copy."
    return InvalidInput(f"{title} could not be fetched from {address}: {reason}. {advice}")
