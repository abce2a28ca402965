"""The base class of all datasets.

A :class:`Source` knows everything about one dataset: its facts (:class:`DatasetInfo`), how to read the publisher's
files, how to fetch them and how to prepare batches. Each dataset has a file of its own in this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedtaco.data import cache
from fedtaco.data.samples import Prepare, TensorSamples
from fedtaco.errors import InvalidInput

Array = npt.NDArray[Any]
Facts = dict[str, Any]
"""What is cached with a dataset: what it was read from, and the statistics of its training inputs."""
Progress = Callable[[str, int, int], None]
"""Called with the name of a split, the number of samples read so far and the number of samples in the split."""


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
        """Join at least one part into a whole."""
        x, y, user = zip(*((part.x, part.y, part.user) for part in parts), strict=True)
        return cls(np.concatenate(x), np.concatenate(y), None if user[0] is None else np.concatenate(user))


@dataclass(frozen=True)
class RawDataset:
    """The training and the test split as compact arrays."""

    train: RawSplit
    test: RawSplit

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the tensors by split and name."""
        return {"train": self.train.tensors(), "test": self.test.tensors()}


@dataclass(frozen=True)
class LoadedDataset:
    """Training and test samples; ``users`` holds the user of each training sample if the dataset records it."""

    info: DatasetInfo
    train: TensorSamples
    test: TensorSamples
    users: Tensor | None = None


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
    """One dataset.

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

    def statistics(self, x: Array) -> Facts:
        """Return the statistics of the training inputs that :meth:`prepare` needs; they are cached."""
        return {}

    def prepare(self, facts: Facts) -> Prepare:
        """Return the function that turns a batch of compact inputs into inputs of the model."""
        return Tensor.float

    def find_folder(self, root: Path) -> Path | None:
        """Return the first folder that contains all files of the dataset, or ``None``."""
        folders = (root / name for name in self.info.folders)
        return next((folder for folder in folders if all((folder / file).exists() for file in self.info.files)), None)

    def availability(self, root: Path) -> str:
        """Return ``embedded``, ``files`` or ``cached``, or a dash if the dataset has to be fetched first."""
        if not self.info.folders:
            return "embedded"
        if self.find_folder(root) is not None:
            return "files"
        return "–" if cache.read_facts(root, self.info.name) is None else "cached"

    def load(self, root: Path) -> LoadedDataset:
        """Load the dataset from its cache, or from its files if there is no cache or the files have changed."""
        name, folder = self.info.name, self.find_folder(root)
        origin = None if folder is None else self._fingerprint(folder)
        facts = cache.read_facts(root, name)
        if facts is None or (folder is not None and facts["origin"] != origin):
            if folder is None:
                raise self._not_found(root)
            raw = self.read(folder)
            self.check(raw, folder, "A file is incomplete or its content does not match its name: download it again.")
            facts = {"origin": origin, **self.statistics(raw.train.x)}
            try:
                cache.write_splits(root, name, raw.tensors(), facts)
            except OSError:  # without write permission, the dataset is used without a cache
                return self.to_loaded(raw.tensors(), facts)
        return self.to_loaded(cache.load_splits(root, name), facts)

    def to_loaded(self, tensors: dict[str, dict[str, Tensor]], facts: Facts) -> LoadedDataset:
        """Return the dataset that consists of these tensors, by split and name."""
        prepare = self.prepare(facts)
        train, test = (TensorSamples(tensors[split]["x"], tensors[split]["y"], prepare) for split in ("train", "test"))
        return LoadedDataset(self.info, train, test, tensors["train"].get("user"))

    def check(self, raw: RawDataset, place: str | Path, advice: str) -> None:
        """Raise InvalidInput, with advice, if shapes or counts differ from the published ones."""
        info = self.info
        for kind, split, count in (("training", raw.train, info.train), ("test", raw.test, info.test)):
            if split.x.shape != (len(split.y), *info.shape):
                raise InvalidInput(
                    f"{place} holds {kind} inputs of shape {split.x.shape} and {len(split.y)} labels; {info.title} "
                    f"has one label per input of shape {info.shape}. {advice}"
                )
            if count is not None and len(split.y) != count:
                raise InvalidInput(
                    f"{place} holds {len(split.y)} {kind} samples of {info.title}; {count} were published. {advice}"
                )

    def _fingerprint(self, folder: Path) -> list[list[Any]]:
        """Return the name, size and modification time of every file, which tell whether the files have changed."""
        named = [folder / name for name in self.info.files]
        files = [file for path in named for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
        return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]

    def _not_found(self, root: Path) -> InvalidInput:
        info, places = self.info, " or ".join(str(root / folder) for folder in self.info.folders)
        return InvalidInput(
            f"{info.title} was not found in the data folder {root}. Fetch it with 'fedtaco data fetch {info.name}', or "
            f"put its files ({', '.join(info.files)}) into {places}. Use --data-dir or FEDTACO_DATA to choose another "
            "data folder."
        )


def damaged_file(path: Path, expected: str) -> InvalidInput:
    """Return the error for a file that does not have the expected content."""
    return InvalidInput(f"{path} is damaged or has the wrong content: expected {expected}. Download the file again.")


def fetch_error(title: str, address: str, error: Exception) -> InvalidInput:
    """Return the error for a failed download."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    advice = "Check the connection, or give a local copy with --from."
    return InvalidInput(f"{title} could not be fetched from {address}: {reason}. {advice}")
