"""One round in progress: its cohort, its messages, and the aggregation of its replies."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import torch
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions, Traffic
from fedtaco.device import deterministic_torch
from fedtaco.diagnostics.stability import monitor
from fedtaco.errors import RunStopped
from fedtaco.flower.arrays import wire_bytes
from fedtaco.flower.log import log
from fedtaco.flower.replies import FAULTS_OF_APPS, ReplyCollector, most_common
from fedtaco.flower.wire import NodeInstructions, broadcast_records
from fedtaco.methods import NamedTensors
from fedtaco.records import Decision
from fedtaco.run_state import FinishedRound, Measure, RoundOutcome

if TYPE_CHECKING:
    from fedtaco.flower.deployment import Deployment


class OpenRound:
    """A round of a deployment, from the choice of its cohort to its records."""

    def __init__(self, deployment: Deployment, cohort: list[int]) -> None:
        self.deployment, self.cohort = deployment, cohort
        self.state, self.server, self.nodes = deployment.state, deployment.server, deployment.nodes
        self.number = self.state.round + 1
        self.started = perf_counter()
        self.node_losses: Tensor | None = None
        """The loss that each client measured in the last evaluation; ``None`` if the nodes measured none."""
        self._collector: ReplyCollector | None = None
        self._unanswered: CohortResults | None = None
        """The results of the survey phase if it had no usable reply."""
        self._survey_decisions: list[Decision] = []
        self._survey_traffic = Traffic()

    def train_messages(self, config: ConfigRecord) -> list[Message]:
        """Return one message per node; run the survey phase first if the method has one.

        If the survey has no usable reply, there are no messages.
        """
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
        """Aggregate the collected replies, and return their mean metrics.

        If no reply can be used, the model does not change, and ``None`` is returned.
        """
        results = self._unanswered or self._results()
        results.traffic += self._survey_traffic
        if self._collector is None or not len(results.clients):
            self.outcome = self.server.skip_round(self.state, results)
            log.warning("Round %d: no reply could be used; the model stays as it was.", self.number)
            return None
        metrics, problems = self._collector.mean_metrics(results)
        for client, complaints in problems.items():
            log.warning("Round %d: of %s, %s.", self.number, self.nodes.name(client), "; ".join(complaints))
        instructions = self._collector.instructions
        with deterministic_torch():
            lost = self._collector.lost_memory
            self.outcome = self.server.conclude(
                self.state,
                instructions,
                results,
                self._survey_decisions,
                lambda screened: self._mirrored_memories(instructions, screened, lost),
            )
        return metrics

    def settle(self, measure: Measure) -> FinishedRound:
        """Evaluate the round, repeat it once if it broke the model, and return its records.

        Raises
        ------
        RunStopped
            If the model or its loss is not finite.
        """
        if self._collector is None:
            metrics = self.server.evaluate(self.outcome.state, measure)
        else:
            instructions = self._collector.instructions
            self.outcome, metrics = self.server.settle(self.state, instructions, self.outcome, measure)
            with deterministic_torch():
                metrics |= monitor(self.server.method, self.state.server, self.outcome.uploads)
        for client in self.outcome.results.clients.tolist():
            self.nodes.last_used[client] = self.number
        self._log_decisions(self.outcome)
        return self.outcome.finish(perf_counter() - self.started, **metrics)

    def memory_round(self, client: int) -> int:
        """Return the round after which a client's memory is valid: this one if its reply was used, else an earlier."""
        return self.number if client in self.outcome.results.clients.tolist() else self.nodes.last_used[client]

    def describe(self) -> str:
        """Return how many replies were used and dropped, for the log."""
        used, dropped = len(self.outcome.results.clients), len(self.outcome.results.dropped)
        replies = "1 reply" if used == 1 else f"{used} replies"
        return f"{replies} used, {dropped} dropped" if dropped else f"{replies} used"

    def _survey(self, config: ConfigRecord) -> bool:
        """Run the survey phase; return whether any reply could be used."""
        instructions = self.server.survey_instructions(self.state)
        messages = self._messages(instructions, config)
        for reply in self.deployment.exchange.replies(messages):
            self.take(reply)
        results, self._collector = self._results(), None
        if not len(results.clients):
            self._unanswered = results
            return False
        with deterministic_torch():
            self.state, self._survey_decisions = self.server.absorb(self.state, instructions, results)
        if not len(results.clients):
            self._unanswered = results
            return False
        self._survey_traffic = results.traffic
        return True

    def _messages(self, instructions: Instructions, config: ConfigRecord) -> list[Message]:
        """Return one message per node, with shared vectors and its own scalars, and prepare to collect the replies."""
        deployment, method = self.deployment, self.server.method
        lowest, key = deployment.model.min_buffers, deployment.policy.weighted_by_key
        templates = deployment.upload_templates(instructions)
        shares = deployment.work_shares(self.cohort, instructions.round)
        steps = [deployment.valid_steps(share) for share in shares]
        collector = ReplyCollector(deployment.compression, instructions, self.cohort, *templates, lowest, steps, key)
        vectors, frozen = broadcast_records(instructions), deployment.model.frozen_fingerprint()
        collector.traffic += Traffic(wire_down=len(self.cohort) * wire_bytes(vectors))
        self._collector = collector
        messages = []
        for row, client in enumerate(self.cohort):
            node = NodeInstructions(
                phase=instructions.phase,
                round=instructions.round,
                run=deployment.run,
                client=client,
                memory_round=self.nodes.last_used[client],
                work_share=shares[row],
                method=deployment.policy.method,
                frozen=frozen,
                settings=deployment.settings,
                parameters=method.parameters(),
                scalars={name: float(column[row]) for name, column in instructions.broadcast.scalars.items()},
            )
            content = RecordDict({**vectors, "config": ConfigRecord({**config, **node.to_config()})})
            messages.append(deployment.message(content, client, MessageType.TRAIN, instructions.round))
        return messages

    def _results(self) -> CohortResults:
        """Return the results of the cohort; log clients without a reply, outliers, and nodes that lost their memory."""
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
        self._require_fedtaco_clients(results)
        results.coverage = len(results.clients) / self.state.members
        return results

    def _require_fedtaco_clients(self, results: CohortResults) -> None:
        """Raise RunStopped if no client app seems to use :func:`fedtaco.flower.train`; one node cannot cause it."""
        if len(results.clients) or any(self.nodes.last_used):
            return
        reasons = [reason for reason in results.dropped.values() if reason.startswith(FAULTS_OF_APPS)]
        is_everybody = len(reasons) == len(self.cohort) and (len(reasons) > 1 or self.nodes.capacity == 1)
        if is_everybody:
            raise RunStopped(
                f"Round {self.number} of {self.server.method.name}: no node sent a reply of fedtaco.flower.train "
                f"({most_common(reasons)}). In the client app, @app.train() must return "
                "fedtaco.flower.train(model, data, msg, context), and mods must not change messages."
            )

    def _mirrored_memories(
        self, instructions: Instructions, results: CohortResults, lost: list[int]
    ) -> dict[int, NamedTensors]:
        """Return the server's copies of the clients' new memories, which the method needs if a client is expelled.

        Nothing is copied if the detector cannot expel clients or the method has no client memory.
        """
        method = self.server.method
        fresh = method.client_memory(instructions.broadcast.start, self.server.constants)
        if not self.server.detector.is_active or not fresh:
            return {}
        memories: dict[int, NamedTensors] = {}
        for row, client in enumerate(results.clients.tolist()):
            before = fresh if client in lost else self.state.memories.get(client, fresh)
            memories[client] = {**before, **self.server.mirror(instructions, results, row, before)}
        return memories

    def _log_decisions(self, outcome: RoundOutcome) -> None:
        for decision in outcome.decisions:
            ending = "; it gets no more messages" if decision.action == "expelled" else ""
            name = self.nodes.name(decision.client)
            log.warning("Round %d: %s is %s: %s%s.", self.number, name, decision.action, decision.reason, ending)
