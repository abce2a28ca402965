"""The run folder of a deployment: records, and a checkpoint after every round."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fedtaco.experiment.result import Result
from fedtaco.experiment.runs import finish
from fedtaco.experiment.saving import changed_memories, last_state, shared_of
from fedtaco.experiment.versions import keep_versions, versions
from fedtaco.flower.members import Members
from fedtaco.records import ClientRecord, History, RoundRecord, RunFolder, Split
from fedtaco.report import summarize
from fedtaco.rounds import State


class Recording:
    """What is known of a run: its history, and a folder if it is to be kept."""

    def __init__(self, folder: RunFolder | None, config: Mapping[str, Any], clients: int) -> None:
        self.folder, self.config, self.clients = folder, config, clients
        self.history = History()
        self.run = secrets.token_hex(8)
        nothing = np.empty(0, dtype=np.int64)
        self.split = Split([nothing] * clients, np.empty((clients, 0), dtype=np.int64))

    def held(self) -> AbstractContextManager[None]:
        """Keep other runs out of the folder."""
        if self.folder is None:
            return nullcontext()
        return self.folder.held(self.config, resume=True, overwrite=False)

    def begin(self, fresh: State) -> tuple[State, Members]:
        """Where the run stands: at its start, or after the last round that the folder holds."""
        self.saved = fresh
        if self.folder is None:
            return fresh, Members(self.clients)
        if not self.folder.exists():
            ran_by = {"engine": "flower", "reason": f"on {self.clients} nodes", "run": self.run}
            self.folder.begin({**self.config, "ran_by": {**ran_by, "versions": [versions(1)]}}, self.split)
            return fresh, Members(self.clients)
        self.run = str(self.folder.config()["ran_by"]["run"])
        stored = self.folder.checkpoint.load()
        state = self.saved = last_state(self.folder, fresh)
        self.folder.rewind(state.round)
        self.history = self.folder.history()
        if state.round < self.config["rounds"]:
            keep_versions(self.folder, state.round + 1)
        return state, Members(self.clients) if stored is None else Members.restored(self.clients, stored[1])

    def keep(self, state: State, members: Members, record: RoundRecord, clients: list[ClientRecord]) -> None:
        self.history.rounds.append(record)
        self.history.clients.extend(clients)
        if self.folder is not None:
            self.folder.append(record, clients)
            shared = {**shared_of(state), **members.stored()}
            self.folder.save_checkpoint(state.round, shared, changed_memories(self.saved, state))
        self.saved = state

    def end(self, method: str, nodes: list[int], result: Result, stopped: str | None) -> None:
        if self.folder is None:
            return
        run = {"method": method, "dataset": self.config["dataset"], "seed": self.config["seed"]}
        notes = {
            "parameters": self.config["parameters"],
            "partition_notes": [],
            "engine": f"flower, on {self.clients} nodes",
            "nodes": nodes,
            "stopped": stopped,
        }
        finish(self.folder, result, {**run, **notes, **summarize(self.history, self.config["target"], self.split)})
