"""Datasets that can be fetched from the Hugging Face hub.

The address may also be a local folder in the hub's parquet layout, so that fetching works offline.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.data.cache import write_cache
from fedtaco.data.published_files import expecting
from fedtaco.data.sources.base import Array, HubColumns, Progress, RawDataset, RawSplit, Source, fetch_error
from fedtaco.errors import InvalidInput

BATCH_SIZE = 1000
"""Number of rows decoded at a time."""


@dataclass(frozen=True)
class HubSource(Source):
    """A dataset on the Hugging Face hub; a subclass implements :meth:`encode_hub`."""

    columns: HubColumns

    @abstractmethod
    def encode_hub(self, inputs: list[Any], targets: list[Any]) -> tuple[Array, Array]:
        """Encode rows of the columns ``x`` and ``y`` as compact arrays, or raise ValueError with a reason.

        Images are given as they are stored, as dictionaries with the encoded image in ``bytes``.
        """

    def combine_hub_splits(self, splits: Sequence[RawSplit]) -> RawDataset:
        """Return the dataset made from the splits on the hub; by default these are the training and test splits."""
        return RawDataset(*splits)

    def fetch(self, root: Path, address: str, progress: Progress) -> Path:
        found, columns, advice = self._open(address), self.columns, "Nothing was saved; try again later."
        with expecting(address, self.info.title, advice):
            splits = [RawSplit.concatenate(self._read_batches(found[name], name, progress)) for name in columns.splits]
            raw = self.combine_hub_splits(splits)
        facts = {"origin": self.info.hub, **self.checked_statistics(raw, address, advice)}
        return write_cache(root, self.cache_name, raw.tensors(), facts)

    def _open(self, address: str) -> Any:
        """Return the ``datasets.DatasetDict`` at an address, checked for the expected splits and columns."""
        try:
            import datasets
        except ImportError as error:
            raise InvalidInput("Fetching from the hub needs an extra: pip install 'fedtaco[hub]'.") from error
        info, columns = self.info, self.columns
        with expecting(address, "a repository on the hub or a folder"):
            local = Path(address).is_dir()
        if address != info.hub and ("/" not in address or Path(address).is_absolute()) and not local:
            raise InvalidInput(f"{address} is not a folder; give one with parquet files in the layout of {info.hub}.")
        try:
            found = datasets.load_dataset(address, None if local else columns.config)
        except Exception as error:
            raise fetch_error(info.title, address, error) from error
        wanted = {name for name in (columns.x, columns.y, columns.user) if name}
        for split in columns.splits:
            if split not in found or not wanted <= set(found[split].column_names):
                names = ", ".join(sorted(wanted))
                raise InvalidInput(f"{address} is not {info.title}: expected a split '{split}' with columns {names}.")
        return found

    def _read_batches(self, rows: Any, name: str, progress: Progress) -> Iterator[RawSplit]:
        """Yield the rows of a split in encoded batches; users are numbered in the order in which they occur."""
        numbers: dict[str, int] = {}
        stored = rows.with_format("arrow")  # as stored: the library decodes nothing and opens no other file
        for start in range(0, len(rows), BATCH_SIZE):
            batch = stored[start : start + BATCH_SIZE].to_pydict()
            names = batch[self.columns.user] if self.columns.user else []
            users = np.array([numbers.setdefault(user, len(numbers)) for user in names], np.int32)
            x, y = self.encode_hub(batch[self.columns.x], batch[self.columns.y])
            progress(name, min(start + BATCH_SIZE, len(rows)), len(rows))
            yield RawSplit(x, y, users if self.columns.user else None)
