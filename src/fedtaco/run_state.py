"""The state of a run between rounds, and a round from its aggregation to its records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from torch import Tensor

from fedtaco.cohort import CohortResults
from fedtaco.methods import NamedTensors, ServerState, Uploads
from fedtaco.model_average import add_model, mean_model
from fedtaco.records import QUANTITIES, ClientRecord, Decision, RoundDiagnostics, RoundRecord, finite_or_none
from fedtaco.screen import judged_losses, record_losses

Measure = Callable[["RoundOutcome"], dict[str, Any]]
"""Evaluates the model of a round; returns what :meth:`RoundOutcome.finish` takes, ``loss`` among it."""


@dataclass(frozen=True)
class RunState:
    """Everything that is kept between rounds, as plain data, so that a run can be resumed from it exactly."""

    round: int
    server: ServerState
    buffers: Tensor
    memories: Mapping[int, NamedTensors]
    """Memory of each client, where the server knows it."""
    expelled: Tensor
    """Whether each client has been expelled from the federation."""
    detector_memory: NamedTensors
    """Memory of the detector."""
    baseline: NamedTensors = field(default_factory=dict)
    """Norms and losses of earlier rounds, with which those of the next round are compared."""
    average: NamedTensors = field(default_factory=dict)
    """The average of the models of the last rounds, see :mod:`fedtaco.model_average`; empty if none is wanted."""
    nodes: NamedTensors = field(default_factory=dict)
    """The nodes of Flower that are the clients; empty in a simulation."""
    adversary_memories: Mapping[int, NamedTensors] = field(default_factory=dict)
    """What simulated adversaries remember, by client; a real server would not know it."""

    @property
    def clients(self) -> int:
        """Number of clients, including expelled ones."""
        return len(self.expelled)

    @property
    def members(self) -> int:
        """Number of clients that are not expelled."""
        return int((~self.expelled).sum())

    @property
    def averaged(self) -> tuple[Tensor, Tensor] | None:
        """Weights and buffers of the average of the last models; ``None`` if there is none."""
        if not self.average or self.round < int(self.average["first_round"]):
            return None
        return mean_model(self.average, self.round, self.server.weights.dtype)


@dataclass(frozen=True)
class FinishedRound:
    """The state after a round, the round's records and, if it was diagnosed, its diagnostics."""

    state: RunState
    record: RoundRecord
    clients: list[ClientRecord]
    diagnostics: RoundDiagnostics | None = None


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
    sides: Tensor | None = None
    """Position of each aggregated upload in the largest disagreement of the round, from -1 to 1, if it is known."""

    def finish(self, wall_seconds: float, node_losses: Tensor | None = None, **metrics: Any) -> FinishedRound:
        """Return the finished round.

        Parameters
        ----------
        wall_seconds
            Elapsed time of the round.
        node_losses
            The loss that each client measured, NaN for one that did not; ``None`` if the server evaluated the model.
        **metrics
            The fields of :class:`RoundRecord` that evaluation provides.
        """
        seconds = [seconds for seconds in self.results.seconds.values() if seconds is not None]
        clients, traffic = self._client_records(), self.results.traffic
        losses = [loss for client in clients if (loss := client.quantities["training_loss"]) is not None]
        record = RoundRecord(
            round=self.state.round,
            training_loss=fmean(losses) if losses else None,
            slowest_client_seconds=max(seconds, default=None),
            wall_seconds=wall_seconds,
            cohort=len(self.results.cohort),
            dropped=dict(self.results.dropped),
            decisions=list(self.decisions),
            bytes_up=traffic.up,
            bytes_down=traffic.down,
            wire_bytes_up=traffic.wire_up,
            wire_bytes_down=traffic.wire_down,
            simulated_duration=self.results.simulated_duration,
            **metrics,
        )
        state = self.state
        average = add_model(state.average, state.round, state.server.weights, state.buffers)
        baseline = record_losses(state.baseline, judged_losses(record.loss, node_losses))
        state = replace(state, baseline=baseline, average=average)
        return FinishedRound(state, record, clients)

    def _client_records(self) -> list[ClientRecord]:
        measured, strikes = self._measure(), self.state.detector_memory["strikes"]
        unused = {quantity.name: quantity.unused for quantity in QUANTITIES}
        return [
            ClientRecord(
                round=self.state.round,
                client=client,
                quantities=measured.get(client, unused),
                seconds=self.results.seconds.get(client),
                strikes=int(strikes[client]),
                expelled=bool(self.state.expelled[client]),
                scores=self.scores.get(client, {}),
            )
            for client in self.results.cohort
        ]

    def _measure(self) -> dict[int, dict[str, float | None]]:
        """Return the recorded quantities of each aggregated upload, by client."""
        if not len(self.uploads.clients):
            return {}
        columns = {quantity.name: quantity.measure(self) for quantity in QUANTITIES}
        clients = enumerate(self.uploads.clients.tolist())
        return {client: {name: _number(own, row) for name, own in columns.items()} for row, client in clients}


def _number(column: Tensor | None, row: int) -> float | None:
    return None if column is None else finite_or_none(float(column[row]))
