"""Convert the state of a run to the arrays of a checkpoint, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.methods import NamedTensors, ServerState
from fedtaco.records import Arrays
from fedtaco.run_state import RunState

ADVERSARY = "adversary/"
"""Prefix of the names of arrays in a simulated adversary's memory."""


def shared_arrays(state: RunState) -> Arrays:
    """Return all arrays of a state except the memories of its clients, by ``group/name``."""
    groups: dict[str, NamedTensors] = {
        "state": {"weights": state.server.weights, "buffers": state.buffers, "expelled": state.expelled},
        "server": state.server.memory,
        "detector": state.detector_memory,
        "baseline": state.baseline,
        "average": state.average,
        "nodes": state.nodes,
    }
    return to_arrays({f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()})


def changed_memories(before: RunState, after: RunState) -> dict[int, Arrays]:
    """Return the memories of those clients whose memory changed between two states."""
    pairs = ((before.memories, after.memories), (before.adversary_memories, after.adversary_memories))
    changed = {client for old, new in pairs for client in new if old.get(client) is not new[client]}
    return {
        client: {
            **to_arrays(after.memories.get(client, {})),
            **{ADVERSARY + name: one for name, one in to_arrays(after.adversary_memories.get(client, {})).items()},
        }
        for client in changed
    }


def restore_state(
    folder: Path, initial: RunState, round_number: int, shared: Arrays, clients: Mapping[int, Arrays]
) -> RunState:
    """Return the state that a checkpoint stores.

    Raises
    ------
    InvalidInput
        If the checkpoint belongs to another model than ``initial``.
    """
    for name, tensor in (("state/weights", initial.server.weights), ("state/buffers", initial.buffers)):
        if name not in shared or shared[name].shape != tensor.shape:
            raise InvalidInput(f"The checkpoint in {folder} is of another model; start the run again (overwrite).")
    groups: dict[str, dict[str, Tensor]] = {}
    for key, array in shared.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = torch.from_numpy(array)
    memories: dict[int, NamedTensors] = {}
    adversaries: dict[int, NamedTensors] = {}
    for client, arrays in clients.items():
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        own = {name.removeprefix(ADVERSARY): tensors.pop(name) for name in arrays if name.startswith(ADVERSARY)}
        memories |= {client: tensors} if tensors else {}
        adversaries |= {client: own} if own else {}
    return RunState(
        round=round_number,
        server=ServerState(groups["state"]["weights"], groups.get("server", {})),
        buffers=groups["state"]["buffers"],
        memories=memories,
        expelled=groups["state"].get("expelled", torch.empty(0)),
        detector_memory=groups.get("detector", {}),
        baseline=groups.get("baseline", {}),
        average=groups.get("average", {}),
        nodes=groups.get("nodes", {}),
        adversary_memories=adversaries,
    )


def to_arrays(named: Mapping[str, Any]) -> Arrays:
    """Return named tensors as numpy arrays."""
    return {name: tensor.numpy() for name, tensor in named.items()}
