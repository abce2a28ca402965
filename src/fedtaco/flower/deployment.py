"""A run on Flower: its state, its nodes and its records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

import torch
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedtaco.client import dry_run
from fedtaco.cohort import Instructions, Phase
from fedtaco.compression import Compression
from fedtaco.errors import RunStopped, StopTraining
from fedtaco.flower.exchange import PAUSE, Exchange
from fedtaco.flower.log import log
from fedtaco.flower.node_registry import NodeRegistry
from fedtaco.flower.open_round import OpenRound
from fedtaco.flower.replies import most_common
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel
from fedtaco.parameters import Domain
from fedtaco.records.formatting import pluralize
from fedtaco.run_state import FinishedRound, Measure, RunState
from fedtaco.runs.callbacks import Run
from fedtaco.runs.recorder import Recorder
from fedtaco.server import Server
from fedtaco.unequal_work import LocalWork, steps_of_share

LOG_EVERY = 10.0
"""Seconds between two log lines while the server waits for nodes."""


@dataclass(frozen=True)
class NodePolicy:
    """What a run requires of its nodes."""

    method: str
    """The name by which nodes find the method, or ``package.module:Class``."""
    min_train_nodes: int
    min_available_nodes: int
    weighted_by_key: str | None


@dataclass
class Deployment:
    """A run on Flower, with everything that outlives a round."""

    policy: NodePolicy
    settings: Mapping[str, Any]
    """The settings that nodes receive."""
    local_work: LocalWork
    server: Server
    model: FlatModel
    recorder: Recorder
    exchange: Exchange
    state: RunState
    nodes: NodeRegistry
    _templates: dict[Phase, tuple[NamedTensors, NamedTensors]] = field(default_factory=dict)
    _rejected: set[int] = field(default_factory=set)

    @property
    def run(self) -> str:
        """Identifier of the run, which a resume does not change."""
        return str(self.recorder.ran_by["run"])

    def work_shares(self, cohort: Sequence[int], number: int) -> list[float]:
        """Return the share of its steps that each client of a cohort takes in a round."""
        return [self.local_work.share(self.server.seed, client, number) for client in cohort]

    def valid_steps(self, share: float) -> Domain:
        """Return the numbers of steps that a node may take: its share of ``local_steps``, fewer if it has epochs."""
        most = steps_of_share(share, self.settings["local_steps"])
        fewest = most if self.settings["local_epochs"] is None else 1
        return Domain("steps of a node", low=fewest, high=most, whole=True)

    def open_round(self) -> OpenRound:
        """Wait until enough nodes are connected, and open the next round with a cohort of them."""
        return OpenRound(self, self._await_cohort().tolist())

    def close_round(self, opened: OpenRound, measure: Measure) -> FinishedRound:
        """Evaluate and record a round whose replies were aggregated, and write a checkpoint."""
        finished = opened.settle(measure)
        self.state = finished.state
        warning = finished.record.warning
        if warning is not None and all(record.warning is None for record in self.recorder.history):
            log.warning("Round %d: %s.", finished.record.round, warning)
        self.recorder.extra = self.nodes.to_arrays()
        self.recorder.add(finished)
        return finished

    @property
    def engine(self) -> str:
        """The engine in words."""
        return f"flower, on {pluralize(self.nodes.capacity, 'node')}"

    def as_run(self) -> Run:
        """Return the run as callbacks see it."""
        folder, recorder = self.recorder.folder, self.recorder
        path = None if folder is None else folder.path
        return Run(
            recorder.config, path, self.engine, recorder.history.rounds, lambda: recorder.current_model(self.model)
        )

    def untrained(self) -> RunStopped | None:
        """Return the error for a run in which no reply was used in any round; ``None`` if one was."""
        history = self.recorder.history
        if any(self.nodes.last_used) or not len(history):
            return None
        reason = most_common(reason for record in history for reason in record.dropped.values())
        return RunStopped(
            f"The model has not been trained: {self.server.method.name} used no reply in "
            f"{pluralize(len(history), 'round')}; the most common reason: {reason}."
        )

    def finish(self, ending: RunStopped | StopTraining | None) -> dict[str, Any]:
        """Write the model of the last recorded round and the summary, and return it; ``ending`` ended the run."""
        notes: dict[str, Any] = {"engine": self.engine, "partition_notes": [], "nodes": self.nodes.nodes}
        return dict(self.recorder.finish(self.server.method, self.model, ending, **notes).summary)

    def message(self, content: RecordDict, client: int, kind: str, number: int) -> Message:
        """Return a message to a client; it expires when the server no longer waits for the reply."""
        return Message(content, self.nodes.nodes[client], kind, ttl=self.exchange.timeout, group_id=str(number))

    def arrays(self) -> ArrayRecord:
        """Return the state dict of the global model as a record."""
        return ArrayRecord(self.model.to_module(self.state.server.weights, self.state.buffers).state_dict())

    def present_clients(self, grid: Grid) -> list[int]:
        """Return the clients that are connected and not expelled."""
        present = self.nodes.connected_mask(grid.get_node_ids()) & ~self.state.detector_memory["expelled"]
        return torch.nonzero(present).flatten().tolist()

    @property
    def compression(self) -> Compression:
        """Decodes the uploads."""
        return Compression(self.server.method, self.server.codec, self.server.seed, self.server.constants)

    def upload_templates(self, instructions: Instructions) -> tuple[NamedTensors, NamedTensors]:
        """Return the names, shapes and types of an honest upload, and of what the client sends, buffers included."""
        if instructions.phase not in self._templates:
            method, constants = self.server.method, self.server.constants
            memory = method.client_memory(instructions.broadcast.start, constants)
            upload, _ = dry_run(method, instructions, constants, memory)
            buffers = {"buffers": instructions.buffers} if instructions.buffers.numel() else {}
            payload = {**self.compression.payload_template(instructions, upload), **buffers}
            self._templates[instructions.phase] = _shapes(upload), _shapes(payload)
        return self._templates[instructions.phase]

    def _await_cohort(self) -> Tensor:
        """Wait until enough nodes are connected, and return the cohort of the next round."""
        chosen = torch.empty(0)

        def enough(connected: list[int]) -> bool:
            nonlocal chosen
            for node in set(self.nodes.admit(connected)) - self._rejected:
                self._rejected.add(node)
                log.warning("Node %d takes no part: the run is for %d clients (clients=).", node, self.nodes.capacity)
            present, members = self.nodes.connected_mask(connected), ~self.state.detector_memory["expelled"]
            chosen = self.server.choose_cohort(self.state, present)
            min_chosen = min(self.policy.min_train_nodes, int(members.sum()))
            min_present = min(self.policy.min_available_nodes, int(members.sum()))
            return int((present & members).sum()) >= min_present and len(chosen) >= min_chosen

        wait_for_nodes(self.exchange, enough, self.policy.min_available_nodes)
        return chosen


def _shapes(named: NamedTensors) -> NamedTensors:
    return {name: tensor.to("meta") for name, tensor in named.items()}


def wait_for_nodes(exchange: Exchange, enough: Callable[[list[int]], bool], wanted: int) -> list[int]:
    """Wait until enough nodes are connected, and return them.

    Parameters
    ----------
    exchange
        The connection to the nodes; its timeout limits the wait.
    enough
        Returns whether these nodes are enough.
    wanted
        The number of nodes that messages state as required.

    Returns
    -------
    list of int
        The connected nodes.

    Raises
    ------
    RunStopped
        If the time is up.
    """
    deadline, next_log = monotonic() + exchange.timeout, 0.0
    while True:
        connected = sorted(exchange.grid.get_node_ids())
        if enough(connected):
            return connected
        if monotonic() > deadline:
            raise RunStopped(
                f"Only {pluralize(len(connected), 'node')} {'was' if len(connected) == 1 else 'were'} connected after "
                f"{exchange.timeout:g} seconds, perhaps some that do not belong to this run; {wanted} are wanted "
                "(min_available_nodes). With a checkpoint, start the run again to continue it."
            )
        if monotonic() >= next_log:
            log.info("Waiting for nodes: %d connected, %d wanted.", len(connected), wanted)
            next_log = monotonic() + LOG_EVERY
        sleep(PAUSE)
