"""Datasets of the LEAF benchmark, in which every sample belongs to a user (a writer, a role)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.data.published_files import expecting, read_json
from fedtaco.data.sources.base import Array, RawDataset, RawSplit
from fedtaco.printable import printable

Encode = Callable[[list[Any], list[Any]], tuple[Array, Array]]
"""Encodes a list of inputs and a list of targets as compact arrays, or raises ValueError with a reason."""
TEST_FRACTION = 0.1
"""Fraction of each user's samples that is used for testing if the publisher provides a single split."""
MAX_FILE_SIZE = 1 << 29
"""Bytes; LEAF's largest file, the training split of all of Shakespeare, has about two thirds of it."""


def read_leaf(folder: Path, encode: Encode) -> RawDataset:
    """Read the JSON files that LEAF's preprocessing wrote to the subfolders ``train`` and ``test``."""
    numbers: dict[str, int] = {}
    splits = []
    for part in (folder / "train", folder / "test"):
        with expecting(part, "LEAF's JSON files with at least one sample"):
            splits.append(RawSplit.concatenate(_read_users(part, encode, numbers)))
    return RawDataset(*splits)


def _read_users(folder: Path, encode: Encode, numbers: dict[str, int]) -> Iterator[RawSplit]:
    """Yield the samples of every user who has any; ``numbers`` assigns numbers to the users' names."""
    for path in sorted(folder.glob("*.json")):
        with expecting(path, "LEAF's JSON with 'users' and 'user_data'"):
            record = read_json(path, MAX_FILE_SIZE)
            samples = {user: record["user_data"][user] for user in record["users"]}
        for user, sample in samples.items():
            with expecting(path, f"valid samples of '{printable(user)}'"):
                inputs, targets = sample["x"], sample["y"]
                if not isinstance(inputs, list) or not isinstance(targets, list) or len(inputs) != len(targets):
                    raise ValueError("x and y are not lists of the same length")
                if not targets:
                    continue
                x, y = encode(inputs, targets)
            yield RawSplit(x, y, np.full(len(targets), numbers.setdefault(user, len(numbers)), np.int32))


def split_by_user(whole: RawSplit, gap: int = 0) -> RawDataset:
    """Use the last tenth of each user's samples, at least one, for testing; a user's only sample is for training.

    The ``gap`` samples before the test samples are discarded, so that windows of text in the two splits do not overlap.
    At least one sample of each user stays in the training split, even if its window overlaps.
    """
    assert whole.user is not None
    by_user = np.split(np.argsort(whole.user, kind="stable"), np.cumsum(np.bincount(whole.user))[:-1])
    cuts = [len(own) - max(1, round(TEST_FRACTION * len(own))) if len(own) > 1 else len(own) for own in by_user]
    train = [own[: max(1, cut - gap)] for own, cut in zip(by_user, cuts, strict=True)]
    test = [own[cut:] for own, cut in zip(by_user, cuts, strict=True)]
    return RawDataset(whole.select(np.concatenate(train)), whole.select(np.concatenate(test)))
