"""One run on a grid of nodes: who is asked, what is sent, what becomes of the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic, perf_counter, sleep

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedtaco.device import quiet_torch
from fedtaco.errors import RunStopped
from fedtaco.experiment.result import Result
from fedtaco.flower.collecting import NO_MARK, NOT_LOADED, RAISED, Collecting
from fedtaco.flower.exchange import PAUSE, Exchange
from fedtaco.flower.log import log
from fedtaco.flower.members import Members
from fedtaco.flower.recording import Recording
from fedtaco.flower.wire import Task, vectors_to_send
from fedtaco.local import Assignment, rehearse
from fedtaco.methods import Memory
from fedtaco.models import FlatModel
from fedtaco.records import Decision, RoundRecord
from fedtaco.rounds import Answers, Conclusion, Coordinator, State

TELL_EVERY = 10.0
"""Seconds between two lines while nodes are awaited."""


@dataclass(frozen=True)
class Terms:
    """What a run asks of the grid and says to every node alike."""

    method: str
    parameters: Mapping[str, float | str]
    batch_size: int
    min_train_nodes: int
    min_available_nodes: int
    weighted_by_key: str | None


@dataclass
class Running:
    """A run between two rounds, or in one."""

    terms: Terms
    coordinator: Coordinator
    model: FlatModel
    recording: Recording
    exchange: Exchange
    state: State
    members: Members
    cohort: list[int] = field(default_factory=list)
    collecting: Collecting | None = None
    answers: Answers | None = None
    order: Assignment | None = None
    concluded: Conclusion | None = None
    began: float = 0.0
    templates: dict[str, Memory] = field(default_factory=dict)
    strangers: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.kept = self.state

    # A round

    def begin_round(self) -> None:
        """Choose the cohort of the next round, once enough nodes are there."""
        self.collecting, self.answers, self.order, self.concluded = None, None, None, None
        self.cohort = self._cohort().tolist()
        self.began = perf_counter()

    def survey(self, config: ConfigRecord) -> bool:
        """The first phase of a method that has two; whether anybody answered."""
        for reply in self.exchange.replies(self.messages(self.coordinator.question(self.state), config)):
            self.take(reply)
        answers = self.answers = self._answers()
        self.collecting = None
        if not len(answers.uploads.clients):
            return False
        self.answers = None
        with quiet_torch():
            self.state = self.coordinator.absorb(self.state, answers)
        return True

    def messages(self, assignment: Assignment, config: ConfigRecord) -> list[Message]:
        """One message a node: the same vectors, its own numbers."""
        coordinator, self.order = self.coordinator, assignment
        self.collecting = Collecting(
            coordinator.method,
            coordinator.setting_of(self.state),
            assignment,
            self.cohort,
            self._template(assignment),
            self.terms.weighted_by_key,
        )
        vectors, frozen = vectors_to_send(assignment), self.model.frozen_fingerprint()
        messages = []
        for row, client in enumerate(self.cohort):
            task = Task(
                phase=assignment.phase,
                round=assignment.round,
                run=self.recording.run,
                client=client,
                memory_round=self.members.answered[client],
                method=self.terms.method,
                parameters=self.terms.parameters,
                setting=coordinator.setting,
                batch_size=self.terms.batch_size,
                seed=coordinator.seed,
                frozen=frozen,
                numbers={name: float(column[row]) for name, column in assignment.broadcast.scalars.items()},
            )
            content = RecordDict({**vectors, "config": ConfigRecord({**config, **task.config()})})
            messages.append(self.message(content, client, MessageType.TRAIN, assignment.round))
        return messages

    def message(self, content: RecordDict, client: int, kind: str, number: int) -> Message:
        """A message of a round to a client, which expires when its reply is no longer awaited."""
        return Message(content, self.members.nodes[client], kind, ttl=self.exchange.timeout, group_id=str(number))

    def take(self, reply: Message) -> None:
        """Take a reply in, or say why it cannot be used."""
        node = self.exchange.node_of(reply)
        client = self.members.number(node)
        if self.collecting is None or client not in self.cohort:
            log.warning("Round %d: a reply of node %d is left out, which was not asked.", self.state.round + 1, node)
            return
        reason = self.collecting.take(client, reply)
        if reason is not None:
            name = self.members.name(client)
            log.warning("Round %d: the reply of %s is left out: %s.", self.state.round + 1, name, reason)

    def conclude(self) -> MetricRecord | None:
        """Aggregate what was taken; a round without a usable reply changes nothing."""
        before, collecting = self.state, self.collecting
        answers = self.answers or self._answers()
        if collecting is None or self.order is None or not len(answers.uploads.clients):
            self.state = replace(before, round=before.round + 1)
            self.concluded = Conclusion(self.state, answers, [], {})
            log.warning("Round %d: no reply could be used; the model stays as it was.", self.state.round)
            return None
        metrics = collecting.mean_metrics(answers)
        with quiet_torch():
            answers = replace(answers, memories=self._mirrored(self.order, answers, collecting.lost_memory))
            self.concluded = self.coordinator.conclude(before, self.order, answers)
        self.state = self.concluded.state
        if not torch.isfinite(self.state.server.weights).all():
            raise self.coordinator.diverged(self.state.round, "the global model is not finite")
        for client in self.concluded.answers.uploads.clients.tolist():
            self.members.answered[client] = self.state.round
        self._tell_decisions(self.concluded.decisions)
        return metrics

    def end_round(self, accuracy: float | None, loss: float | None) -> None:
        """Record the round and keep a checkpoint."""
        assert self.concluded is not None
        answers = self.concluded.answers
        timed = [seconds for seconds in answers.seconds.values() if seconds is not None]
        record = RoundRecord(
            round=self.state.round,
            accuracy=accuracy,
            loss=loss,
            slowest_client_seconds=max(timed, default=None),
            wall_seconds=perf_counter() - self.began,
            cohort=len(self.cohort),
            dropped=dict(answers.dropped),
            decisions=self.concluded.decisions,
        )
        self.kept = self.state
        self.recording.keep(self.state, self.members, record, self.concluded.client_records())

    def end(self, stopped: str | None) -> None:
        """Keep the model of the last round that was recorded, and say how the run ended."""
        server, buffers = self.kept.server, self.kept.buffers
        output = self.coordinator.method.output(server)
        model = self.model.trained(server.weights, buffers)
        other = model if output is server.weights else self.model.trained(output, buffers)
        result = Result(self.recording.history, model, other)
        self.recording.end(self.coordinator.method.name, self.members.nodes, result, stopped)

    # What there is

    def outcome(self) -> str:
        """How the last round went, in a few words."""
        assert self.concluded is not None
        used, dropped = len(self.concluded.answers.uploads.clients), len(self.concluded.answers.dropped)
        return f"{used} replies used, {dropped} left out" if dropped else f"{used} replies used"

    def arrays(self, weights: Tensor) -> ArrayRecord:
        """The model with these weights, as Flower's users know it."""
        return ArrayRecord(self.model.trained(weights, self.state.buffers).state_dict())

    def present(self, grid: Grid) -> list[int]:
        """The clients that are connected and not expelled."""
        here = self.members.here(grid.get_node_ids()) & ~self.state.trust["expelled"]
        return torch.nonzero(here).flatten().tolist()

    def _cohort(self) -> Tensor:
        chosen = torch.empty(0)

        def enough(connected: list[int]) -> bool:
            nonlocal chosen
            for node in set(self.members.admit(connected)) - self.strangers:
                self.strangers.add(node)
                log.warning("Node %d takes no part: the run is for %d clients (clients=).", node, self.members.places)
            here, stays = self.members.here(connected), ~self.state.trust["expelled"]
            chosen = self.coordinator.cohort(self.state, here)
            wanted = min(self.terms.min_train_nodes, int(stays.sum()))
            needed = min(self.terms.min_available_nodes, int(stays.sum()))
            return int((here & stays).sum()) >= needed and len(chosen) >= wanted

        wait_for_nodes(self.exchange, enough, self.terms.min_available_nodes)
        return chosen

    def _answers(self) -> Answers:
        assert self.collecting is not None
        answers = self.collecting.answers(f"no reply came within {self.exchange.timeout:g} seconds")
        for client in set(answers.dropped) - set(self.collecting.told):
            reason = answers.dropped[client]
            log.warning("Round %d: %s is left out: %s.", self.state.round + 1, self.members.name(client), reason)
        for client in self.collecting.lost_memory:
            log.warning(
                "Round %d: %s has lost its memory of round %d and went on with a fresh one; give it a folder: "
                "--node-config 'memory-dir=\"…\"'.",
                self.state.round + 1,
                self.members.name(client),
                self.members.answered[client],
            )
        self._require_the_client_half(answers)
        return answers

    def _require_the_client_half(self, answers: Answers) -> None:
        """Stop a run whose client apps never answered as they must, instead of going on with nothing."""
        if len(answers.uploads.clients) or any(self.members.answered):
            return
        foreign = [reason for reason in answers.dropped.values() if reason.startswith((NO_MARK, RAISED, NOT_LOADED))]
        if foreign:
            raise RunStopped(
                f"Round {self.state.round + 1} of {self.coordinator.method.name}: no node answered as fedtaco's client "
                f"half does ({foreign[0]}). In the client app, let @app.train() return "
                "fedtaco.flower.train(model, data, msg, context)."
            )

    def _template(self, assignment: Assignment) -> Memory:
        """The names, shapes and types of what an honest client sends, buffers included."""
        if assignment.phase not in self.templates:
            method, setting = self.coordinator.method, self.coordinator.setting
            memory = method.client_memory(assignment.broadcast.start, setting)
            upload, _ = rehearse(method, assignment, setting, memory)
            buffers = {"buffers": assignment.buffers} if assignment.buffers.numel() else {}
            shapes = {name: tensor.to("meta") for name, tensor in {**upload, **buffers}.items()}
            self.templates[assignment.phase] = shapes
        return self.templates[assignment.phase]

    def _mirrored(self, order: Assignment, answers: Answers, lost: list[int]) -> dict[int, Memory]:
        """What clients remember now, where a detector may have to let one go and the method then needs it."""
        method = self.coordinator.method
        fresh = method.client_memory(order.broadcast.start, self.coordinator.setting)
        if self.coordinator.detector is None or not fresh:
            return {}
        mirrored = {}
        for row, client in enumerate(answers.uploads.clients.tolist()):
            before = fresh if client in lost else self.state.memories.get(client, fresh)
            upload = {name: matrix[row] for name, matrix in answers.uploads.vectors.items()}
            mirrored[client] = method.mirror(before, upload)
        return mirrored

    def _tell_decisions(self, decisions: list[Decision]) -> None:
        for one in decisions:
            ending = "; it gets no more messages" if one.action == "expelled" else ""
            name = self.members.name(one.client)
            log.warning("Round %d: %s is %s: %s%s.", self.state.round, name, one.action, one.reason, ending)


def wait_for_nodes(exchange: Exchange, enough: Callable[[list[int]], bool], wanted: int) -> list[int]:
    """Wait until enough nodes are connected, and say so meanwhile."""
    deadline, tell_at = monotonic() + exchange.timeout, 0.0
    while True:
        connected = sorted(exchange.grid.get_node_ids())
        if enough(connected):
            return connected
        if monotonic() > deadline:
            raise RunStopped(
                f"Only {len(connected)} nodes were connected after {exchange.timeout:g} seconds, or nodes that have no "
                f"part in this run; {wanted} are wanted (min_available_nodes). With a checkpoint, the same run goes on "
                "where it stopped."
            )
        if monotonic() >= tell_at:
            log.info("Waiting for nodes: %d connected, %d wanted.", len(connected), wanted)
            tell_at = monotonic() + TELL_EVERY
        sleep(PAUSE)
