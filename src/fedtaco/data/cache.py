"""The data folder, and the cache in it that makes the second load of a dataset fast.

A cached dataset has one file per split, which is mapped into memory instead of being read. The files are
written completely or not at all.
"""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedtaco.data.published_files import expecting
from fedtaco.files import replacing, writing

SCHEMA = 1
"""Version of the cache's layout; a cache of another version is ignored."""
Splits = dict[str, dict[str, Tensor]]
"""Tensors by split and name."""
Facts = dict[str, Any]
"""Stored with a dataset: what it was read from, and the statistics of its training inputs."""


def data_folder(given: str | Path | None = None) -> Path:
    """Return the data folder: ``given``, else FEDTACO_DATA, else ``fedtaco`` in the user's cache folder."""
    if given is not None:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FEDTACO_DATA") or Path(cache) / "fedtaco")


def cache_folder(root: Path, name: str) -> Path:
    """Return the folder of a cached dataset."""
    return root / "cache" / name.replace(":", "-")


def read_cache(root: Path, name: str) -> tuple[Splits, Facts] | None:
    """Return the tensors of a cached dataset, mapped into memory, and its facts; ``None`` if there is none.

    Raise InvalidInput if the cache is damaged.
    """
    paths = _split_paths(root, name)
    with expecting_cache(cache_folder(root, name), name):
        if not all(path.is_file() for path in paths.values()):
            return None
    splits, facts = {}, []
    for split, path in paths.items():
        with expecting_cache(path, name), safe_open(path, framework="pt") as stored:
            facts.append(json.loads(stored.metadata()["facts"]))
            if facts[-1]["schema"] != SCHEMA:
                return None
            if facts[-1] != facts[0] or "origin" not in facts[0]:
                raise ValueError("its facts are incomplete or differ from those of the other split")
            splits[split] = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118 - safe_open cannot be iterated
    return splits, facts[0]


def expecting_cache(path: Path, name: str) -> AbstractContextManager[None]:
    """Raise InvalidInput that says how to repair the cache of a dataset if it cannot be read."""
    return expecting(path, "a cached dataset", f"Fetch it again with 'fedtaco data fetch {name}'.")


def write_cache(root: Path, name: str, splits: Splits, facts: Facts) -> Path:
    """Write the tensors of both splits and the facts about the dataset, and return the folder of all caches.

    Raise InvalidInput if the folder cannot be written.
    """
    paths = _split_paths(root, name)
    metadata = {"facts": json.dumps({"schema": SCHEMA, **facts})}
    with writing(cache_folder(root, name)):
        paths["train"].parent.mkdir(parents=True, exist_ok=True)
        paths["train"].unlink(missing_ok=True)
        for split in ("test", "train"):  # the training split comes last: while it is missing, the cache is not used
            with replacing(paths[split]) as temporary:
                save_file(splits[split], temporary, metadata=metadata)
    return root / "cache"


def _split_paths(root: Path, name: str) -> dict[str, Path]:
    return {split: cache_folder(root, name) / f"{split}.safetensors" for split in ("train", "test")}
