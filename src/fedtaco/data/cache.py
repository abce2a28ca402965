"""The data folder, and the cache in it that makes the second load of a dataset fast.

A cached dataset has one file per split, which is mapped into memory instead of being read. The files are
written completely or not at all.
"""

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedtaco.records.files import replacing

SCHEMA = 1
"""Version of the cache's layout; a cache of another version is ignored."""


def data_folder(given: str | Path | None = None) -> Path:
    """Return the data folder: ``given``, else the environment variable FEDTACO_DATA, else one in the user's cache."""
    if given is not None:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FEDTACO_DATA") or Path(cache) / "fedtaco")


def read_facts(root: Path, name: str) -> dict[str, Any] | None:
    """Return the facts stored with a cached dataset, or ``None`` if it is not cached or the cache is damaged."""
    facts: dict[str, Any] = {}
    for path in _split_paths(root, name).values():
        try:
            with safe_open(path, framework="numpy") as stored:
                facts = json.loads(stored.metadata()["facts"])
        except (FileNotFoundError, SafetensorError):
            return None
    return facts if facts["schema"] == SCHEMA else None


def write_splits(root: Path, name: str, splits: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> Path:
    """Write the tensors of both splits, with facts about the dataset, and return the folder of the cache."""
    paths = _split_paths(root, name)
    metadata = {"facts": json.dumps({"schema": SCHEMA, **facts})}
    paths["train"].parent.mkdir(parents=True, exist_ok=True)
    paths["train"].unlink(missing_ok=True)
    for split in ("test", "train"):  # the training split comes last: while it is missing, the cache is not used
        with replacing(paths[split]) as temporary:
            save_file(splits[split], temporary, metadata=metadata)
    return root / "cache"


def load_splits(root: Path, name: str) -> dict[str, dict[str, Tensor]]:
    """Map the tensors of both splits into memory."""
    return {split: load_file(path) for split, path in _split_paths(root, name).items()}


def _split_paths(root: Path, name: str) -> dict[str, Path]:
    folder = root / "cache" / name.replace(":", "-")
    return {split: folder / f"{split}.safetensors" for split in ("train", "test")}
