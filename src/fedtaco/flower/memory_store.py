"""The memory of a node between rounds: in Flower's context, or in a folder of its own that outlives the run.

Two memories are kept: that of the last round whose reply the server used, and that of the last round
answered. The server says which of them holds, since a reply may be lost or dropped.
"""

import re
from pathlib import Path

from flwr.app import ArrayRecord, Context, RecordDict
from safetensors.torch import load_file, save_file

from fedtaco.errors import InvalidInput
from fedtaco.flower.wire import NodeInstructions, read_tensors, to_record
from fedtaco.methods import NamedTensors
from fedtaco.records.files import replacing, writing_run

FOLDER_KEY = "memory-dir"
"""The key of the node's own configuration that names the folder."""


class ContextStore:
    """Stores memories in Flower's context, which lasts as long as the run and the node's process."""

    prefix = "fedtaco.memory."

    def __init__(self, state: RecordDict) -> None:
        self.state = state

    def get(self, round_number: int) -> NamedTensors | None:
        """Return the memory after a round, or ``None``."""
        return read_tensors(self.state, f"{self.prefix}{round_number}") or None

    def put(self, round_number: int, memory: NamedTensors, *, beside: int) -> None:
        """Store a new memory and keep the one of round ``beside``; remove all others."""
        kept = {f"{self.prefix}{beside}", f"{self.prefix}{round_number}"}
        for name in [name for name in self.state if name.startswith(self.prefix) and name not in kept]:
            del self.state[name]
        record: ArrayRecord = to_record(memory)
        self.state[f"{self.prefix}{round_number}"] = record


class FolderStore:
    """Stores memories as files in a folder, one folder per run and client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, round_number: int) -> NamedTensors | None:
        path = self._path(round_number)
        return load_file(path) if path.is_file() else None

    def put(self, round_number: int, memory: NamedTensors, *, beside: int) -> None:
        with writing_run(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(round_number)) as temporary:
                save_file({name: tensor.contiguous() for name, tensor in memory.items()}, temporary)
            kept = {self._path(beside), self._path(round_number)}
            for path in self.folder.glob("*.safetensors"):
                if path not in kept:
                    path.unlink()

    def _path(self, round_number: int) -> Path:
        return self.folder / f"{round_number}.safetensors"


MemoryStore = ContextStore | FolderStore


def open_store(context: Context, instructions: NodeInstructions) -> MemoryStore:
    """Return the store that the node is configured with."""
    folder = context.node_config.get(FOLDER_KEY)
    if folder is None:
        return ContextStore(context.state)
    if not re.fullmatch(r"[0-9a-f]+", instructions.run):
        raise InvalidInput(f"The server names its run '{instructions.run}'; it must be hexadecimal.")
    return FolderStore(Path(str(folder)) / f"{instructions.run}-{instructions.client}")
