"""One round in progress: whom it asks, what it sends, and what becomes of the replies."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import torch
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from fedtaco.cohort import CohortResults, Instructions
from fedtaco.device import deterministic_torch
from fedtaco.errors import RunStopped
from fedtaco.flower.log import log
from fedtaco.flower.replies import NO_HEADER, NOT_LOADED, RAISED, ReplyCollector
from fedtaco.flower.wire import NodeInstructions, broadcast_records
from fedtaco.methods import NamedTensors
from fedtaco.server import FinishedRound, RoundOutcome

if TYPE_CHECKING:
    from fedtaco.flower.deployment import Deployment


class OpenRound:
    """A round of a deployment, from the choice of its cohort to its records."""

    def __init__(self, deployment: Deployment, cohort: list[int]) -> None:
        self.deployment, self.cohort = deployment, cohort
        self.state, self.server, self.nodes = deployment.state, deployment.server, deployment.nodes
        self.number = self.state.round + 1
        self.started = perf_counter()
        self._collector: ReplyCollector | None = None
        self._unanswered: CohortResults | None = None
        """The results of a survey without any usable reply."""

    def train_messages(self, config: ConfigRecord) -> list[Message]:
        """Return one message per node; none if the survey of a method with two phases was not answered."""
        if self.server.method.surveys and not self._survey(config):
            return []
        return self._messages(self.server.train_instructions(self.state, torch.tensor(self.cohort)), config)

    def take(self, reply: Message) -> None:
        """Collect a reply, or log why it cannot be used."""
        node = self.deployment.exchange.node_of(reply)
        client = self.nodes.client_of(node)
        if self._collector is None or client is None or client not in self.cohort:
            log.warning("Round %d: a reply of node %d, which was not asked, is dropped.", self.number, node)
            return
        reason = self._collector.take(client, reply)
        if reason is not None:
            log.warning("Round %d: the reply of %s is dropped: %s.", self.number, self.nodes.name(client), reason)

    def conclude(self) -> MetricRecord | None:
        """Aggregate what was collected; a round without a usable reply changes nothing."""
        results = self._unanswered or self._results()
        if self._collector is None or not len(results.clients):
            self.outcome = self.server.skip_round(self.state, results)
            log.warning("Round %d: no reply could be used; the model stays as it was.", self.number)
            return None
        metrics = self._collector.mean_metrics(results)
        instructions = self._collector.instructions
        with deterministic_torch():
            results.memories = self._mirrored_memories(instructions, results, self._collector.lost_memory)
            self.outcome = self.server.conclude(self.state, instructions, results)
        if not torch.isfinite(self.outcome.state.server.weights).all():
            raise self.server.diverged(self.number, "the global model is not finite")
        for client in results.clients.tolist():
            self.nodes.last_used[client] = self.number
        self._log_decisions(self.outcome)
        return metrics

    def finish(self, accuracy: float | None, loss: float | None) -> FinishedRound:
        """Return the round's records."""
        return self.outcome.finish(perf_counter() - self.started, accuracy=accuracy, loss=loss)

    def describe(self) -> str:
        """Say how the round went, in a few words."""
        used, dropped = len(self.outcome.results.clients), len(self.outcome.results.dropped)
        return f"{used} replies used, {dropped} dropped" if dropped else f"{used} replies used"

    def _survey(self, config: ConfigRecord) -> bool:
        """Run the first phase of a method that has two; return whether any reply could be used."""
        messages = self._messages(self.server.survey_instructions(self.state), config)
        for reply in self.deployment.exchange.replies(messages):
            self.take(reply)
        results, self._collector = self._results(), None
        if not len(results.clients):
            self._unanswered = results
            return False
        with deterministic_torch():
            self.state = self.server.absorb(self.state, results)
        return True

    def _messages(self, instructions: Instructions, config: ConfigRecord) -> list[Message]:
        """Return one message per node: the same vectors, and the node's own scalars."""
        deployment, method = self.deployment, self.server.method
        template, key = deployment.upload_template(instructions), deployment.policy.weighted_by_key
        steps = self.server.constants.local_steps
        self._collector = ReplyCollector(method, instructions, self.cohort, template, steps, key)
        vectors, frozen = broadcast_records(instructions), deployment.model.frozen_fingerprint()
        messages = []
        for row, client in enumerate(self.cohort):
            node = NodeInstructions(
                phase=instructions.phase,
                round=instructions.round,
                run=deployment.run,
                client=client,
                memory_round=self.nodes.last_used[client],
                method=deployment.policy.method,
                frozen=frozen,
                setting=deployment.settings,
                parameter=method.parameters(),
                scalar={name: float(column[row]) for name, column in instructions.broadcast.scalars.items()},
            )
            content = RecordDict({**vectors, "config": ConfigRecord({**config, **node.to_config()})})
            messages.append(deployment.message(content, client, MessageType.TRAIN, instructions.round))
        return messages

    def _results(self) -> CohortResults:
        """Close the collector and log what was dropped without a log line so far."""
        assert self._collector is not None
        collector, timeout = self._collector, self.deployment.exchange.timeout
        results = collector.results(f"no reply came within {timeout:g} seconds")
        for client in set(results.dropped) - set(collector.reported):
            reason = results.dropped[client]
            log.warning("Round %d: %s is dropped: %s.", self.number, self.nodes.name(client), reason)
        for client in collector.lost_memory:
            log.warning(
                "Round %d: %s has lost its memory of round %d and continued with a new one; give it a folder: "
                "--node-config 'memory-dir=\"…\"'.",
                self.number,
                self.nodes.name(client),
                self.nodes.last_used[client],
            )
        self._require_client_half(results)
        return results

    def _require_client_half(self, results: CohortResults) -> None:
        """Stop a run whose client apps never answered as they must."""
        if len(results.clients) or any(self.nodes.last_used):
            return
        foreign = [reason for reason in results.dropped.values() if reason.startswith((NO_HEADER, RAISED, NOT_LOADED))]
        if foreign:
            raise RunStopped(
                f"Round {self.number} of {self.server.method.name}: no node answered as fedtaco's client "
                f"half does ({foreign[0]}). In the client app, let @app.train() return "
                "fedtaco.flower.train(model, data, msg, context)."
            )

    def _mirrored_memories(
        self, instructions: Instructions, results: CohortResults, lost: list[int]
    ) -> dict[int, NamedTensors]:
        """Return what clients remember now, if the detector may expel one and the method would then need it."""
        method = self.server.method
        fresh = method.client_memory(instructions.broadcast.start, self.server.constants)
        if not self.server.detector.is_active or not fresh:
            return {}
        mirrored = {}
        for row, client in enumerate(results.clients.tolist()):
            before = fresh if client in lost else self.state.memories.get(client, fresh)
            upload = {name: matrix[row] for name, matrix in results.vectors.items()}
            mirrored[client] = method.mirror(before, upload)
        return mirrored

    def _log_decisions(self, outcome: RoundOutcome) -> None:
        for one in outcome.decisions:
            ending = "; it gets no more messages" if one.action == "expelled" else ""
            name = self.nodes.name(one.client)
            log.warning("Round %d: %s is %s: %s%s.", self.number, name, one.action, one.reason, ending)
