"""Convert the state of a run to the arrays of a checkpoint, and back."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.methods import NamedTensors, ServerState
from fedtaco.records import Arrays
from fedtaco.run_state import RunState
from fedtaco.simulator import SimulatorState

ADVERSARY = "adversary/"
"""Prefix of the names of arrays in a simulated adversary's memory."""

State = TypeVar("State", bound=RunState)


def shared_arrays(state: RunState) -> Arrays:
    """Return all arrays of a state except the memories of its clients, by ``group/name``."""
    groups: dict[str, NamedTensors] = {
        "state": {"weights": state.server.weights, "buffers": state.buffers},
        "server": state.server.memory,
        "detector": state.detector_memory,
        "baseline": state.baseline,
        "average": state.average,
    }
    return to_arrays({f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()})


def changed_memories(before: RunState, after: RunState) -> dict[int, Arrays]:
    """Return the memories of those clients whose memory changed between two states."""
    old, new, new_adversaries = before.memories, after.memories, _adversary_memories(after)
    changed = {client for client in new if old.get(client) is not new[client]}
    old_adversaries = _adversary_memories(before)
    changed |= {client for client in new_adversaries if old_adversaries.get(client) is not new_adversaries[client]}
    return {
        client: {
            **to_arrays(new.get(client, {})),
            **{ADVERSARY + name: array for name, array in to_arrays(new_adversaries.get(client, {})).items()},
        }
        for client in changed
    }


def restore_state(
    folder: Path, initial: State, round_number: int, shared: Arrays, clients: Mapping[int, Arrays]
) -> tuple[State, Arrays]:
    """Return the state that a checkpoint stores, and its further arrays (see ``Recorder.extra``).

    Raises
    ------
    InvalidInput
        If the checkpoint belongs to another model than ``initial``.
    """
    for name, tensor in (("state/weights", initial.server.weights), ("state/buffers", initial.buffers)):
        if name not in shared or shared[name].shape != tensor.shape:
            raise InvalidInput(f"The checkpoint in {folder} is of another model; start the run again (overwrite).")
    groups: dict[str, dict[str, Tensor]] = {"state": {}, "server": {}, "detector": {}, "baseline": {}, "average": {}}
    extra = {key: array for key, array in shared.items() if key.partition("/")[0] not in groups}
    for key in set(shared) - set(extra):
        group, _, name = key.partition("/")
        groups[group][name] = torch.from_numpy(shared[key])
    memories: dict[int, NamedTensors] = {}
    adversaries: dict[int, NamedTensors] = {}
    for client, arrays in clients.items():
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        own = {name.removeprefix(ADVERSARY): tensors.pop(name) for name in arrays if name.startswith(ADVERSARY)}
        memories |= {client: tensors} if tensors else {}
        adversaries |= {client: own} if own else {}
    state = replace(
        initial,
        round=round_number,
        server=ServerState(groups["state"]["weights"], groups["server"]),
        buffers=groups["state"]["buffers"],
        memories=memories,
        detector_memory=groups["detector"],
        baseline=groups["baseline"],
        average=groups["average"],
    )
    return (replace(state, adversary_memories=adversaries) if isinstance(state, SimulatorState) else state), extra


def to_arrays(named: Mapping[str, Any]) -> Arrays:
    """Return named tensors as numpy arrays."""
    return {name: tensor.numpy() for name, tensor in named.items()}


def _adversary_memories(state: RunState) -> Mapping[int, NamedTensors]:
    return state.adversary_memories if isinstance(state, SimulatorState) else {}
