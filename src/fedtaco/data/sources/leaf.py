"""Datasets of the LEAF benchmark, in which every sample belongs to a user (a writer, a role)."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.data.sources.base import Array, RawDataset, RawSplit, damaged_file
from fedtaco.errors import InvalidInput

Encode = Callable[[list[Any], list[Any]], tuple[Array, Array]]
"""Encodes a list of inputs and a list of targets as compact arrays."""
TEST_FRACTION = 0.1
"""Fraction of each user's samples that is used for testing if the publisher provides a single split."""


def read_leaf(folder: Path, encode: Encode) -> RawDataset:
    """Read the JSON files that LEAF's preprocessing wrote to the subfolders ``train`` and ``test``."""
    numbers: dict[str, int] = {}
    splits = []
    for part in (folder / "train", folder / "test"):
        users = list(_read_users(part, encode, numbers))
        if not users:
            raise damaged_file(part, "at least one LEAF JSON file")
        splits.append(RawSplit.concatenate(users))
    return RawDataset(*splits)


def _read_users(folder: Path, encode: Encode, numbers: dict[str, int]) -> Iterator[RawSplit]:
    """Yield the samples of every user; ``numbers`` assigns numbers to the users' names."""
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_bytes())
            users = [(user, record["user_data"][user]["x"], record["user_data"][user]["y"]) for user in record["users"]]
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_file(path, "LEAF's JSON with 'users' and 'user_data'") from error
        for user, inputs, targets in users:
            try:
                x, y = encode(inputs, targets)
            except InvalidInput:
                raise
            except (ValueError, TypeError, IndexError) as error:
                raise InvalidInput(f"The samples of '{user}' in {folder} are damaged: {error}.") from error
            yield RawSplit(x, y, np.full(len(targets), numbers.setdefault(user, len(numbers)), np.int32))


def split_by_user(whole: RawSplit, gap: int = 0) -> RawDataset:
    """Use the last tenth of each user's samples for testing.

    The ``gap`` samples before them are discarded, so that overlapping windows of text do not end up in both splits.
    """
    assert whole.user is not None
    by_user = np.split(np.argsort(whole.user, kind="stable"), np.cumsum(np.bincount(whole.user))[:-1])
    cuts = [len(own) - max(1, round(TEST_FRACTION * len(own))) if len(own) > 1 else len(own) for own in by_user]
    train = [own[: max(1, cut - gap)] for own, cut in zip(by_user, cuts, strict=True)]
    test = [own[cut:] for own, cut in zip(by_user, cuts, strict=True)]
    return RawDataset(whole.select(np.concatenate(train)), whole.select(np.concatenate(test)))
