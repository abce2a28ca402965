"""A node's memory between rounds, stored in Flower's context or in a folder.

Two memories are stored: the one after the last round whose reply the server used, and the one after the last
round that the node answered. The server states which of them is valid, since a reply may be lost or dropped.
"""

from pathlib import Path

from flwr.app import Context, RecordDict
from safetensors.torch import load_file, save_file

from fedtaco.errors import InvalidInput
from fedtaco.files import reading, replacing, writing_run
from fedtaco.flower.arrays import read_tensors, to_record
from fedtaco.flower.wire import EvaluationInstructions, NodeInstructions
from fedtaco.methods import NamedTensors

FOLDER_KEY = "memory-dir"
"""Key in the node's configuration that names the folder."""


class ContextStore:
    """Stores memories in Flower's context, which lasts as long as the run and the node's process."""

    prefix = "fedtaco.memory."

    def __init__(self, state: RecordDict) -> None:
        self.state = state

    def get(self, round_number: int, like: NamedTensors) -> NamedTensors | None:
        """Return the memory after a round, of which ``like`` has the names and shapes; ``None`` if it is not stored."""
        return _require_like(like, read_tensors(self.state, f"{self.prefix}{round_number}") or None)

    def put(self, round_number: int, memory: NamedTensors, *, keep: int) -> None:
        """Store the memory after a round, keep that of the round ``keep``, and remove all others."""
        kept = {f"{self.prefix}{keep}", f"{self.prefix}{round_number}"}
        for name in [name for name in self.state if name.startswith(self.prefix) and name not in kept]:
            del self.state[name]
        self.state[f"{self.prefix}{round_number}"] = to_record(memory)


class FolderStore:
    """Stores memories as files in a folder of this run and client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, round_number: int, like: NamedTensors) -> NamedTensors | None:
        with reading(self._path(round_number)) as path:
            return _require_like(like, load_file(path) if path.is_file() else None)

    def put(self, round_number: int, memory: NamedTensors, *, keep: int) -> None:
        with writing_run(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(round_number)) as temporary:
                save_file({name: tensor.contiguous() for name, tensor in memory.items()}, temporary)
            kept = {self._path(keep), self._path(round_number)}
            for path in self.folder.glob("*.safetensors"):
                if path not in kept:
                    path.unlink()

    def _path(self, round_number: int) -> Path:
        return self.folder / f"{round_number}.safetensors"


MemoryStore = ContextStore | FolderStore


def open_store(context: Context, instructions: NodeInstructions | EvaluationInstructions) -> MemoryStore:
    """Return the store that the node is configured with."""
    folder = context.node_config.get(FOLDER_KEY)
    if folder is None:
        return ContextStore(context.state)
    return FolderStore(Path(str(folder)) / f"{instructions.run}-{instructions.client}")


def _require_like(like: NamedTensors, found: NamedTensors | None) -> NamedTensors | None:
    """Return what is wanted of a stored memory; raise InvalidInput if it has not all names and shapes of ``like``."""
    if found is None:
        return None
    wanted = {name: tensor for name, tensor in found.items() if name in like}
    if shapes(wanted) == shapes(like):
        return wanted
    raise InvalidInput(
        "The memory that this node has stored for the run is of another method or model; start a new run."
    )


def shapes(named: NamedTensors) -> dict[str, object]:
    """Return the shape and type of each tensor."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in named.items()}
