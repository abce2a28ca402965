"""What a node remembers from round to round: in Flower's context, or in a folder of its own that outlives the run.

Two memories are kept: that of the last round whose answer the server used, and that of the last round
answered. Which of them holds is the server's to say, since an answer may be lost or left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from flwr.app import ArrayRecord, Context, RecordDict
from safetensors.torch import load_file, save_file

from fedtaco.errors import InvalidInput
from fedtaco.flower.wire import Task, as_record, tensors_of
from fedtaco.methods import Memory
from fedtaco.records.files import replacing, storage

FOLDER_KEY = "memory-dir"
"""The node's own setting that names the folder."""


class Keep(Protocol):
    """Memories by the round after which they held."""

    def get(self, round_number: int) -> Memory | None: ...

    def put(self, round_number: int, memory: Memory, *, beside: int) -> None:
        """Keep a new memory and the one of the round ``beside``; forget all others."""
        ...


def keep_of(context: Context, task: Task) -> Keep:
    folder = context.node_config.get(FOLDER_KEY)
    if folder is None:
        return InContext(context.state)
    if not re.fullmatch(r"[0-9a-f]+", task.run):
        raise InvalidInput(f"The server names its run '{task.run}'; it must be hexadecimal.")
    return InFolder(Path(str(folder)) / f"{task.run}-{task.client}")


class InContext:
    """In Flower's context, which lasts as long as the run and the node's process."""

    prefix = "fedtaco.memory."

    def __init__(self, state: RecordDict) -> None:
        self.state = state

    def get(self, round_number: int) -> Memory | None:
        return tensors_of(self.state, f"{self.prefix}{round_number}") or None

    def put(self, round_number: int, memory: Memory, *, beside: int) -> None:
        kept = {f"{self.prefix}{beside}", f"{self.prefix}{round_number}"}
        for name in [name for name in self.state if name.startswith(self.prefix) and name not in kept]:
            del self.state[name]
        record: ArrayRecord = as_record(memory)
        self.state[f"{self.prefix}{round_number}"] = record


class InFolder:
    """As files of a folder, one for each run and client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, round_number: int) -> Memory | None:
        path = self._path(round_number)
        return load_file(path) if path.is_file() else None

    def put(self, round_number: int, memory: Memory, *, beside: int) -> None:
        with storage(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(round_number)) as temporary:
                save_file({name: tensor.contiguous() for name, tensor in memory.items()}, temporary)
            kept = {self._path(beside), self._path(round_number)}
            for path in self.folder.glob("*.safetensors"):
                if path not in kept:
                    path.unlink()

    def _path(self, round_number: int) -> Path:
        return self.folder / f"{round_number}.safetensors"
