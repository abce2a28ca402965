"""The clients of a federation that are nodes of Flower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic, sleep
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result
from torch import Tensor

from fedtaco.client import dry_run
from fedtaco.cohort import CohortResults, Instructions, Phase, Traffic
from fedtaco.compression import Compression
from fedtaco.device import deterministic_torch
from fedtaco.errors import RunStopped
from fedtaco.flower.arrays import wire_bytes
from fedtaco.flower.evaluation import average_evaluations, evaluation_messages, recorded_scores
from fedtaco.flower.exchange import PAUSE, Exchange
from fedtaco.flower.log import log
from fedtaco.flower.node_registry import NodeRegistry
from fedtaco.flower.replies import FAULTS_OF_APPS, ReplyCollector, UploadFormat, most_common
from fedtaco.flower.wire import NodeInstructions, broadcast_records
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel
from fedtaco.parameters import Domain
from fedtaco.records.formatting import pluralize
from fedtaco.run_state import RoundOutcome, RunState
from fedtaco.server import Server
from fedtaco.unequal_work import steps_of_share

LOG_EVERY = 10.0
"""Seconds between two log lines while the server waits for nodes."""

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""Evaluates the global model on the server, given the round and the model."""


@dataclass(frozen=True)
class NodePolicy:
    """What a run requires of its nodes, and what it sends them besides its own entries."""

    min_train_nodes: int
    min_available_nodes: int
    weighted_by_key: str | None
    fraction_evaluate: float
    train_config: ConfigRecord = field(default_factory=ConfigRecord)
    evaluate_config: ConfigRecord = field(default_factory=ConfigRecord)
    evaluate_fn: EvaluateFn | None = None


class NodeClients:
    """The nodes of a run on Flower; a node that fails is an absent client.

    Parameters
    ----------
    server
        Knows the run.
    model
        The model that is trained.
    policy
        What the run requires of its nodes.
    exchange
        Sends messages and yields replies.
    run_id
        Returns the identifier of the run, which a resume does not change.
    """

    def __init__(
        self, server: Server, model: FlatModel, policy: NodePolicy, exchange: Exchange, run_id: Callable[[], str]
    ) -> None:
        self.server, self.model, self.policy, self.exchange, self.run_id = server, model, policy, exchange, run_id
        self.spec, self.constants = server.spec, server.constants
        self.compression = Compression(server.spec, server.constants)
        self.nodes = NodeRegistry(server.constants.clients)
        self.metrics = Result()
        """The means of what the nodes report, as Flower's own strategies return them."""
        self._formats: dict[Phase, UploadFormat] = {}
        self._rejected: set[int] = set()

    # The loop over rounds calls these

    def start(self, state: RunState) -> None:
        self.nodes = NodeRegistry.from_tensors(self.constants.clients, state.nodes)
        if state.round == 0 and self.policy.evaluate_fn is not None:
            by_server = self.policy.evaluate_fn(0, self.arrays(state))
            store_metrics(self.metrics.evaluate_metrics_serverapp, 0, by_server)

    def available(self, state: RunState) -> Tensor:
        """Wait until enough nodes are connected, and return a mask of their clients."""
        members, policy = ~state.expelled, self.policy
        present = members

        def enough(connected: list[int]) -> bool:
            nonlocal present
            for node in set(self.nodes.admit(connected)) - self._rejected:
                self._rejected.add(node)
                log.warning("Node %d takes no part: the run is for %d clients (clients=).", node, self.nodes.capacity)
            present = self.nodes.connected_mask(connected) & members
            wanted = max(policy.min_available_nodes, policy.min_train_nodes)
            return int(present.sum()) >= min(wanted, int(members.sum()))

        wait_for_nodes(self.exchange, enough, policy.min_available_nodes)
        return present

    def new_memory(self, instructions: Instructions) -> NamedTensors:
        return self.spec.method.client_memory(instructions.broadcast.start, self.constants)

    def run(self, state: RunState, instructions: Instructions, cohort: Tensor) -> CohortResults:
        clients, number = cohort.tolist(), instructions.round
        collector = ReplyCollector(self._format(instructions), instructions, self._valid_steps(clients, number))
        messages = self._messages(instructions, clients, collector)
        if instructions.phase == "train":
            log.info("Round %d of %d: training on %s.", number, self.constants.rounds, pluralize(len(clients), "node"))
        for reply in self.exchange.replies(messages):
            self._take(reply, collector)
        results = collector.results(f"no reply came within {self.exchange.timeout:g} seconds")
        self._log_problems(collector, results)
        self._require_fedtaco_clients(results, number)
        results.coverage = len(results.clients) / state.members
        if not len(results.clients):
            log.warning("Round %d: no reply could be used; the model stays as it was.", number)
        elif instructions.phase == "train":
            self._store_train_metrics(collector, results, number)
            results.memories = self._mirrored_memories(state, instructions, results, collector.lost_memory)
        return results

    def evaluate(self, outcome: RoundOutcome) -> dict[str, Any]:
        number, arrays = outcome.state.round, self.arrays(outcome.state)
        used = set(outcome.results.clients.tolist())
        memory_rounds = [number if client in used else last for client, last in enumerate(self.nodes.last_used)]
        messages = evaluation_messages(self, outcome.state, arrays, memory_rounds)
        by_nodes, node_losses = average_evaluations(self, self.exchange.replies(messages), number)
        by_server = None if self.policy.evaluate_fn is None else self.policy.evaluate_fn(number, arrays)
        store_metrics(self.metrics.evaluate_metrics_clientapp, number, by_nodes)
        store_metrics(self.metrics.evaluate_metrics_serverapp, number, by_server)
        return recorded_scores(by_nodes, by_server, node_losses)

    def end_round(self, outcome: RoundOutcome) -> RunState:
        number = outcome.state.round
        for client in outcome.results.clients.tolist():
            self.nodes.last_used[client] = number
        for one in outcome.decisions:
            ending = "; it gets no more messages" if one.action == "expelled" else ""
            name = self.nodes.name(one.client)
            log.warning("Round %d: %s is %s: %s%s.", number, name, one.action, one.reason, ending)
        return replace(outcome.state, nodes=self.nodes.to_tensors())

    def stop(self) -> None:
        pass

    # Messages and replies

    def arrays(self, state: RunState) -> ArrayRecord:
        """Return the state dict of the global model as a record."""
        return ArrayRecord(self.model.to_module(state.server.weights, state.buffers).state_dict())

    def message(self, content: RecordDict, client: int, kind: str, number: int) -> Message:
        """Return a message to a client; it expires when the server no longer waits for the reply."""
        return Message(content, self.nodes.nodes[client], kind, ttl=self.exchange.timeout, group_id=str(number))

    def _work_share(self, client: int, number: int) -> float:
        """Return the share of its steps that a client takes in a round."""
        return self.spec.work.local_work.share(self.spec.settings["seed"], client, number)

    def _valid_steps(self, clients: Sequence[int], number: int) -> dict[int, Domain]:
        """Return the numbers of steps that nodes may take: their share of K, fewer if they train for epochs."""
        has_epochs = self.spec.settings["local_epochs"] is not None
        most = {
            client: steps_of_share(self._work_share(client, number), self.constants.local_steps) for client in clients
        }
        return {
            client: Domain("steps of a node", low=1 if has_epochs else own, high=own, whole=True)
            for client, own in most.items()
        }

    def _format(self, instructions: Instructions) -> UploadFormat:
        """Return what an honest reply contains."""
        if instructions.phase not in self._formats:
            upload, _ = dry_run(self.spec.method, instructions, self.constants, self.new_memory(instructions))
            buffers = {"buffers": instructions.buffers} if instructions.buffers.numel() else {}
            payload = {**self.compression.payload_template(instructions, upload), **buffers}
            lowest, key = self.model.min_buffers, self.policy.weighted_by_key
            self._formats[instructions.phase] = UploadFormat(
                self.compression, _shapes(upload), _shapes(payload), lowest, key
            )
        return self._formats[instructions.phase]

    def _messages(self, instructions: Instructions, clients: Sequence[int], collector: ReplyCollector) -> list[Message]:
        """Return one message per node, with shared vectors and its own scalars."""
        vectors, frozen = broadcast_records(instructions), self.model.frozen_fingerprint()
        collector.traffic += Traffic(wire_down=len(clients) * wire_bytes(vectors))
        config, scalars = self.spec.config, instructions.broadcast.scalars
        messages = []
        for row, client in enumerate(clients):
            node = NodeInstructions(
                phase=instructions.phase,
                round=instructions.round,
                run=self.run_id(),
                client=client,
                memory_round=self.nodes.last_used[client],
                work_share=self._work_share(client, instructions.round),
                method=config["method"],
                frozen=frozen,
                settings=config,
                parameters=self.spec.method.parameters(),
                scalars={name: float(column[row]) for name, column in scalars.items()},
            )
            content = RecordDict({**vectors, "config": ConfigRecord({**self.policy.train_config, **node.to_config()})})
            messages.append(self.message(content, client, MessageType.TRAIN, instructions.round))
        return messages

    def _take(self, reply: Message, collector: ReplyCollector) -> None:
        """Collect a reply, or log why it cannot be used."""
        number, node = collector.instructions.round, self.exchange.node_of(reply)
        client = self.nodes.client_of(node)
        if client is None or client not in collector.rows:
            log.warning("Round %d: a reply of node %d, which was not asked, is dropped.", number, node)
            return
        reason = collector.take(client, reply)
        if reason is not None:
            log.warning("Round %d: the reply of %s is dropped: %s.", number, self.nodes.name(client), reason)

    def _log_problems(self, collector: ReplyCollector, results: CohortResults) -> None:
        """Log clients without a reply, and nodes that lost their memory."""
        number = collector.instructions.round
        for client in set(results.dropped) - set(collector.reported):
            name, reason = self.nodes.name(client), results.dropped[client]
            log.warning("Round %d: %s is dropped: %s.", number, name, reason)
        for client in collector.lost_memory:
            log.warning(
                "Round %d: %s has lost its memory of round %d and continued with a new one; give it a folder: "
                "--node-config 'memory-dir=\"…\"'.",
                number,
                self.nodes.name(client),
                self.nodes.last_used[client],
            )

    def _require_fedtaco_clients(self, results: CohortResults, number: int) -> None:
        """Raise RunStopped if no client app seems to use :func:`fedtaco.flower.train`; one node cannot cause it."""
        if len(results.clients) or any(self.nodes.last_used):
            return
        reasons = [reason for reason in results.dropped.values() if reason.startswith(FAULTS_OF_APPS)]
        is_everybody = len(reasons) == len(results.cohort) and (len(reasons) > 1 or self.nodes.capacity == 1)
        if is_everybody:
            raise RunStopped(
                f"Round {number} of {self.spec.method.name}: no node sent a reply of fedtaco.flower.train "
                f"({most_common(reasons)}). In the client app, @app.train() must return "
                "fedtaco.flower.train(model, data, msg, context), and mods must not change messages."
            )

    def _store_train_metrics(self, collector: ReplyCollector, results: CohortResults, number: int) -> None:
        metrics, problems = collector.mean_metrics(results)
        for client, complaints in problems.items():
            log.warning("Round %d: of %s, %s.", number, self.nodes.name(client), "; ".join(complaints))
        store_metrics(self.metrics.train_metrics_clientapp, number, metrics)

    def _mirrored_memories(
        self, state: RunState, instructions: Instructions, results: CohortResults, lost: Sequence[int]
    ) -> dict[int, NamedTensors]:
        """Return the server's copies of the clients' new memories, which the method needs if a client is expelled.

        Nothing is copied if the detector cannot expel clients or the method has no client memory.
        """
        fresh = self.new_memory(instructions)
        if not self.spec.detector.is_active or not fresh:
            return {}
        memories: dict[int, NamedTensors] = {}
        with deterministic_torch():
            for row, client in enumerate(results.clients.tolist()):
                before = fresh if client in lost else state.memories.get(client, fresh)
                memories[client] = {**before, **self.server.mirror(instructions, results, row, before)}
        return memories


def store_metrics(results: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
    """Store the metrics of a round, if there are any."""
    if metrics is not None:
        results[number] = metrics


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


def _shapes(named: NamedTensors) -> NamedTensors:
    return {name: tensor.to("meta") for name, tensor in named.items()}
