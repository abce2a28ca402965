"""The data folder: where datasets are looked for, and the cache that makes the second load quick.

A cached dataset is one file per split, which is mapped into memory and not read. It is written
whole or not at all, and made anew when the files it came from change.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor

from fedtaco.data.catalog import DatasetInfo
from fedtaco.data.raw import Split, Splits, read_files
from fedtaco.errors import InvalidInput

SCHEMA = 1


def data_folder(given: str | Path | None = None) -> Path:
    """``given``, or the variable FEDTACO_DATA, or a folder in the user's cache."""
    if given is not None:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FEDTACO_DATA") or Path(cache) / "fedtaco")


def find_files(info: DatasetInfo, root: Path) -> Path | None:
    """The folder that holds all of a dataset's files in their publisher's layout."""
    for name in info.folders:
        folder = root / name
        if all((folder / file).exists() for file in info.files):
            return folder
    return None


def whereabouts(info: DatasetInfo, root: Path) -> str:
    """How a dataset is at hand: embedded, as files, cached, or not at all."""
    if not info.folders:
        return "embedded"
    if find_files(info, root) is not None:
        return "files"
    return "cached" if cached_facts(info, root) is not None else "–"


def load_stored(info: DatasetInfo, root: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The tensors of both splits, and what was measured on the training inputs."""
    source = find_files(info, root)
    origin = None if source is None else _fingerprint(info, source)
    facts = cached_facts(info, root)
    if facts is None or (origin is not None and facts["origin"] != origin):
        if source is None or origin is None:
            raise _missing(info, root)
        splits = read_files(info, source)
        facts = {"schema": SCHEMA, "origin": origin, **_measure(splits.train.x)}
        with suppress(OSError):
            write_cache(info, root, splits, facts)
            return _mapped(info, root), facts
        return {"train": _tensors(splits.train), "test": _tensors(splits.test)}, facts
    return _mapped(info, root), facts


def cached_facts(info: DatasetInfo, root: Path) -> dict[str, Any] | None:
    """What the cache says of a dataset; ``None`` if there is no whole one."""
    if not all(path.is_file() for path in _paths(info, root).values()):
        return None
    facts: dict[str, Any] = {}
    for path in _paths(info, root).values():
        try:
            with safe_open(path, framework="numpy") as stored:
                facts = json.loads(stored.metadata()["facts"])
        except SafetensorError:
            return None
    return facts if facts["schema"] == SCHEMA else None


def write_cache(info: DatasetInfo, root: Path, splits: Splits, facts: dict[str, Any]) -> None:
    """Write both splits; the training one last, since it vouches for the cache."""
    paths = _paths(info, root)
    paths["train"].parent.mkdir(parents=True, exist_ok=True)
    paths["train"].unlink(missing_ok=True)
    for name in ("test", "train"):
        partial = paths[name].with_suffix(".part")
        try:
            save_file(_arrays(getattr(splits, name)), partial, metadata={"facts": json.dumps(facts)})
            partial.replace(paths[name])
        finally:
            partial.unlink(missing_ok=True)


def cache_fetched(info: DatasetInfo, root: Path, splits: Splits) -> None:
    """Keep a dataset that came from the hub."""
    write_cache(info, root, splits, {"schema": SCHEMA, "origin": info.hub, **_measure(splits.train.x)})


def _mapped(info: DatasetInfo, root: Path) -> dict[str, dict[str, Tensor]]:
    return {name: load_file(path) for name, path in _paths(info, root).items()}


def _tensors(split: Split) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in _arrays(split).items()}


def _arrays(split: Split) -> dict[str, npt.NDArray[Any]]:
    named = {"x": split.x, "y": split.y, "user": split.user}
    return {name: np.require(array, requirements=["C", "W"]) for name, array in named.items() if array is not None}


def _paths(info: DatasetInfo, root: Path) -> dict[str, Path]:
    folder = root / "cache" / info.name.replace(":", "-")
    return {name: folder / f"{name}.safetensors" for name in ("train", "test")}


def _fingerprint(info: DatasetInfo, source: Path) -> list[list[Any]]:
    named = [source / name for name in info.files]
    files = [file for path in named for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _measure(x: npt.NDArray[Any]) -> dict[str, list[float]]:
    """Mean and deviation per channel of images in [0, 255], from their histogram."""
    if x.ndim != 4:
        return {}
    values = np.arange(256) / 255
    counts = [np.bincount(x[:, channel].ravel(), minlength=256) for channel in range(x.shape[1])]
    means = [float(count @ values / count.sum()) for count in counts]
    squares = [float(count @ values**2 / count.sum()) for count in counts]
    return {"mean": means, "deviation": [(s - m * m) ** 0.5 for s, m in zip(squares, means, strict=True)]}


def _missing(info: DatasetInfo, root: Path) -> InvalidInput:
    places = " or ".join(str(root / folder) for folder in info.folders)
    return InvalidInput(
        f"{info.title} was not found in the data folder {root}. Fetch it with 'fedtaco data fetch {info.name}', or put "
        f"its files ({', '.join(info.files)}) into {places}. --data-dir or FEDTACO_DATA name another data folder."
    )
