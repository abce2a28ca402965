"""Check that a state from a checkpoint consists of the arrays that the run needs."""

from pathlib import Path

import torch

from fedtaco.errors import InvalidInput
from fedtaco.methods import NamedTensors
from fedtaco.records import Arrays
from fedtaco.run_state import RunState
from fedtaco.runs.state_arrays import shared_arrays, to_arrays


def require_structure(folder: Path, initial: RunState, stored: RunState, client_memory: NamedTensors) -> None:
    """Raise InvalidInput unless a stored state has all arrays of the initial one, with their kinds and shapes.

    An axis that is empty in the initial state may have any size. The memory of each client is compared with
    ``client_memory``.
    """
    _require(folder, shared_arrays(initial), shared_arrays(stored))
    sizes = {"loss": (2, 2 * initial.clients), "broken": (1,)}
    for name, numbers in stored.baseline.items():
        is_valid = numbers.ndim == 1 and numbers.numel() in sizes.get(name, (numbers.numel(),))
        if not is_valid or numbers.dtype != torch.float64:
            raise _invalid(folder, f"baseline/{name}")
    for memory in stored.memories.values():
        _require(folder, to_arrays(client_memory), to_arrays(memory))


def _require(folder: Path, initial: Arrays, stored: Arrays) -> None:
    for name, array in initial.items():
        found = stored.get(name)
        if (
            found is None
            or found.dtype.kind != array.dtype.kind
            or found.ndim != array.ndim
            or any(size not in (0, other) for size, other in zip(array.shape, found.shape, strict=True))
        ):
            raise _invalid(folder, name)


def _invalid(folder: Path, name: str) -> InvalidInput:
    return InvalidInput(f"The checkpoint in {folder} has no valid '{name}'; start the run again (overwrite).")
