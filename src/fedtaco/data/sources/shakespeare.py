"""Shakespeare of LEAF: the next character after 80 characters of a role's lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedtaco.data.cache import Facts
from fedtaco.data.samples import Prepare
from fedtaco.data.sources.base import Array, DatasetInfo, HubColumns, RawDataset, RawSplit
from fedtaco.data.sources.hub import HubSource
from fedtaco.data.sources.leaf import read_leaf, split_by_user
from fedtaco.errors import InvalidInput

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters that occur in LEAF's text; a character is encoded as its position."""
WINDOW = 80
"""Number of characters in an input."""

_CODES = np.zeros(256, np.uint8)
_CODES[np.frombuffer(ALPHABET.encode("latin-1"), np.uint8)] = np.arange(len(ALPHABET))


class Shakespeare(HubSource):
    """Windows of text by role, encoded as positions in the alphabet."""

    def read(self, folder: Path) -> RawDataset:
        return read_leaf(folder, self.encode_hub)  # LEAF's files and the hub hold the same strings

    def check(self, raw: RawDataset, place: str | Path, advice: str) -> None:
        super().check(raw, place, advice)
        if max(raw.train.x.max(), raw.test.x.max()) >= len(ALPHABET):
            raise InvalidInput(f"{place} holds inputs that are not positions in LEAF's alphabet. {advice}")

    def prepare(self, facts: Facts) -> Prepare:
        return Tensor.long

    def encode_hub(self, inputs: list[Any], targets: list[Any]) -> tuple[Array, Array]:
        """Encode windows of text, and the character after each, as positions in the alphabet."""
        text, size = "".join([*inputs, *targets]), len(inputs) * WINDOW
        if any(len(window) != WINDOW for window in inputs) or any(len(target) != 1 for target in targets):
            raise ValueError(f"an input does not have {WINDOW} characters, or a target is not a single character")
        if unknown := set(text) - set(ALPHABET):
            raise ValueError(f"the text contains {min(unknown)!r}, which is not one of LEAF's 80 characters")
        codes = _CODES[np.frombuffer(text.encode("latin-1"), np.uint8)]
        return codes[:size].reshape(-1, WINDOW), codes[size:]

    def combine_hub_splits(self, splits: Sequence[RawSplit]) -> RawDataset:
        return split_by_user(splits[0], gap=WINDOW)


SHAKESPEARE = Shakespeare(
    DatasetInfo(
        name="shakespeare",
        title="Shakespeare, next character (LEAF)",
        shape=(WINDOW,),
        classes=len(ALPHABET),
        model="lstm",
        partition="natural",
        folders=("shakespeare",),
        files=("train", "test"),
        hub="flwrlabs/shakespeare",
        citation="Caldas et al., LEAF: a benchmark for federated settings, 2018",
    ),
    HubColumns("x", "y", "character_id", splits=("train",)),
)
