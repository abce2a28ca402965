"""The server's half of a round, wherever the clients are: on this machine or across a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.methods import Broadcast, Constants, Expulsion, Method, NamedTensors, ServerState, Uploads, weighted_sum
from fedtaco.randomness import generator
from fedtaco.records import QUANTITIES, ClientRecord, Decision, RoundRecord
from fedtaco.trust import Detector, DetectorInput, Off


@dataclass(frozen=True)
class RunState:
    """Everything that outlives a round, as plain data: a run continues from it as if it had never stopped."""

    round: int
    server: ServerState
    buffers: Tensor
    memories: Mapping[int, NamedTensors]
    """Memory of each client, where the server knows it."""
    trust: NamedTensors
    """Memory of the detector."""

    @property
    def members(self) -> int:
        """Number of clients that are not expelled."""
        return int((~self.trust["expelled"]).sum())


@dataclass(frozen=True)
class FinishedRound:
    """The state after a round, and the round's records."""

    state: RunState
    record: RoundRecord
    clients: list[ClientRecord]


@dataclass(frozen=True)
class RoundOutcome:
    """A round after aggregation, before evaluation."""

    state: RunState
    results: CohortResults
    uploads: Uploads
    """The uploads that were aggregated."""
    decisions: Sequence[Decision] = ()
    scores: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The detector's scores, by client."""

    def finish(self, wall_seconds: float, **metrics: Any) -> FinishedRound:
        """Return the round's records; ``metrics`` are the fields of :class:`RoundRecord` that evaluation gives."""
        seconds = [seconds for seconds in self.results.seconds.values() if seconds is not None]
        record = RoundRecord(
            round=self.state.round,
            slowest_client_seconds=max(seconds, default=None),
            wall_seconds=wall_seconds,
            cohort=len(self.results.cohort),
            dropped=dict(self.results.dropped),
            decisions=list(self.decisions),
            **metrics,
        )
        return FinishedRound(self.state, record, self._client_records())

    def _client_records(self) -> list[ClientRecord]:
        measured, trust = self._measure(), self.state.trust
        unused = {quantity.name: quantity.unused for quantity in QUANTITIES}
        return [
            ClientRecord(
                round=self.state.round,
                client=client,
                quantities=measured.get(client, unused),
                seconds=self.results.seconds.get(client),
                strikes=int(trust["strikes"][client]),
                expelled=bool(trust["expelled"][client]),
                scores=self.scores.get(client, {}),
            )
            for client in self.results.cohort
        ]

    def _measure(self) -> dict[int, dict[str, float | None]]:
        if not len(self.uploads.clients):
            return {}
        columns = {quantity.name: quantity.measure(self.uploads).tolist() for quantity in QUANTITIES}
        clients = enumerate(self.uploads.clients.tolist())
        return {client: {name: values[row] for name, values in columns.items()} for row, client in clients}


@dataclass(frozen=True)
class Server:
    """Chooses cohorts, sends instructions, and turns a cohort's results into the next state."""

    method: Method
    constants: Constants
    seed: int
    cohort_size: int
    detector: Detector = field(default_factory=Off)

    def __post_init__(self) -> None:
        if self.detector.is_active and not self.method.inspectable:
            raise InvalidInput(f"No detector can judge the uploads of {self.method.name}; use --detector off.")

    def initial_state(self, weights: Tensor, buffers: Tensor) -> RunState:
        """Return the state before the first round."""
        server = ServerState(weights, self.method.server_memory(weights, self.constants))
        return RunState(0, server, buffers, {}, self.detector.initial_memory(weights, self.constants))

    def choose_cohort(self, state: RunState, available: Tensor | None = None) -> Tensor:
        """Return the clients of the next round, chosen among the ``available`` ones (all by default)."""
        number = state.round + 1
        if state.members == 0:
            raise RunStopped(
                f"Round {number} of {self.method.name}: the detector has expelled every client. "
                "Relax the detector's parameters, or use another detector or none (--detector off)."
            )
        stays = ~state.trust["expelled"]
        active = torch.nonzero(stays if available is None else stays & available).flatten()
        if self.cohort_size >= len(active):
            return active
        shuffled = generator(self.seed, "cohort", number).permutation(len(active))
        return active[torch.from_numpy(shuffled[: self.cohort_size]).sort().values]

    def survey_instructions(self, state: RunState) -> Instructions:
        """Return what the cohort of a method with two phases is asked first."""
        return Instructions("survey", state.round + 1, Broadcast(state.server.weights), state.buffers)

    def absorb(self, state: RunState, results: CohortResults) -> RunState:
        """Return the state with the answers of the survey phase."""
        return replace(state, server=self.method.absorb(state.server, self._uploads(state, results)))

    def train_instructions(self, state: RunState, cohort: Tensor) -> Instructions:
        """Return what the cohort is asked to train."""
        return Instructions("train", state.round + 1, self.method.broadcast(state.server, cohort), state.buffers)

    def conclude(self, state: RunState, instructions: Instructions, results: CohortResults) -> RoundOutcome:
        """Judge the uploads, aggregate those that are used, and remove expelled clients."""
        uploads = self._uploads(state, results)
        partial = self.cohort_size < self.constants.clients
        cohort = torch.tensor(results.cohort)
        verdict = self.detector.judge(
            state.trust, DetectorInput(instructions.broadcast, cohort, uploads, instructions.round, partial)
        )
        scores = dict(zip(results.clients.tolist(), verdict.scores, strict=True))
        if verdict.dropped.any():
            reasons = {decision.client: decision.reason for decision in verdict.decisions}
            results.drop(verdict.dropped, {**dict.fromkeys(results.cohort, "the detector gave no reason"), **reasons})
            uploads = self._uploads(state, results)
        uploads.aggregation_weights = self.method.weigh(state.server, uploads)
        used = set(results.clients.tolist())
        new_memories = {client: memory for client, memory in results.memories.items() if client in used and memory}
        after = replace(
            state,
            round=instructions.round,
            server=self.method.aggregate(state.server, uploads),
            buffers=weighted_sum(uploads.aggregation_weights, results.buffers),
            memories={**state.memories, **new_memories},
            trust=verdict.memory,
        )
        return RoundOutcome(self._remove_expelled(after, state), results, uploads, verdict.decisions, scores)

    def skip_round(self, state: RunState, results: CohortResults) -> RoundOutcome:
        """Return the outcome of a round without any usable upload: the model stays as it was."""
        return RoundOutcome(replace(state, round=state.round + 1), results, self._uploads(state, results))

    def diverged(self, number: int, reason: str) -> RunStopped:
        """Return the error of a run that cannot continue."""
        return RunStopped(
            f"Round {number} of {self.method.name}: {reason}; the run has diverged. Try a smaller local rate "
            f"(it is {self.constants.local_lr:g}) or a weaker correction."
        )

    def _uploads(self, state: RunState, results: CohortResults) -> Uploads:
        constants = replace(self.constants, clients=state.members)
        return Uploads(constants, results.clients, results.vectors, results.steps, results.shares)

    def _remove_expelled(self, state: RunState, before: RunState) -> RunState:
        expelled = torch.nonzero(state.trust["expelled"] & ~before.trust["expelled"]).flatten()
        if len(expelled) == 0:
            return state
        fresh = self.method.client_memory(state.server.weights, self.constants)
        memories = {client: state.memories.get(client, fresh) for client in expelled.tolist()}
        expulsion = Expulsion(expelled, before.members, memories)
        return replace(state, server=self.method.remove_clients(state.server, expulsion))


def cohort_size(participation: float, clients: int) -> int:
    """Return the number of clients in a round.

    >>> cohort_size(0.25, clients=10), cohort_size(0.01, clients=10)
    (2, 1)
    """
    return max(1, round(participation * clients))
