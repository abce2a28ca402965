"""From a run's state to what its folder keeps, and back."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.federation import RoundOutcome
from fedtaco.methods import Memory, Server
from fedtaco.records import Arrays, RunFolder
from fedtaco.rounds import State

SHARE_OF_TIME = 0.03
"""How much of a run's time its checkpoints may take; a run that is killed redoes the rounds after the last one."""


class Saving:
    """Writes finished rounds, and a checkpoint as often as its cost allows."""

    def __init__(self, folder: RunFolder | None, state: State) -> None:
        self.folder, self.state = folder, state
        self.saved = state
        self.not_before = 0.0

    def keep(self, outcome: RoundOutcome) -> None:
        if self.folder is not None:
            self.folder.append(outcome.record, outcome.clients)
        self.state = outcome.state
        if monotonic() >= self.not_before:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Save the state, unless it is saved already."""
        if self.folder is None or self.saved is self.state:
            return
        began = monotonic()
        changed = changed_memories(self.saved, self.state)
        self.folder.save_checkpoint(self.state.round, shared_of(self.state), changed)
        self.saved, ended = self.state, monotonic()
        self.not_before = ended + (ended - began) * (1 / SHARE_OF_TIME - 1)


def last_state(folder: RunFolder, fresh: State) -> State:
    """The state of the last checkpoint, from which an interrupted run goes on; ``fresh`` if there is none."""
    stored = folder.checkpoint.load()
    if stored is None:
        return fresh
    round_number, shared, clients = stored
    for name, tensor in (("state/weights", fresh.server.weights), ("state/buffers", fresh.buffers)):
        if name not in shared or shared[name].shape != tensor.shape:
            raise InvalidInput(f"The checkpoint in {folder.path} is of another model; start the run again (overwrite).")
    groups: dict[str, dict[str, Tensor]] = {}
    for key, tensor in _tensors(shared).items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = tensor
    own = groups["state"]
    return State(
        round_number,
        Server(own["weights"], groups.get("server", {})),
        own["buffers"],
        {client: _tensors(memory) for client, memory in clients.items()},
        groups["trust"],
    )


def changed_memories(before: State, after: State) -> dict[int, Arrays]:
    """What clients remember that they did not remember before."""
    new = {client: memory for client, memory in after.memories.items() if before.memories.get(client) is not memory}
    return {client: _arrays(memory) for client, memory in new.items()}


def shared_of(state: State) -> Arrays:
    """All of a state but the clients' memories, as a checkpoint takes it."""
    groups: dict[str, Memory] = {
        "state": {"weights": state.server.weights, "buffers": state.buffers},
        "server": state.server.memory,
        "trust": state.trust,
    }
    return _arrays({f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()})


def _arrays(named: Memory) -> Arrays:
    return {name: tensor.numpy() for name, tensor in named.items()}


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
