"""The server's part of a round, for clients on this machine or across a network."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions
from fedtaco.device import deterministic_torch
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.methods import Broadcast, Constants, Expulsion, Method, NamedTensors, ServerState, Uploads
from fedtaco.model_average import start_average
from fedtaco.models import split_memory
from fedtaco.randomness import generator
from fedtaco.records import Decision
from fedtaco.run_state import Measure, RoundOutcome, RunState
from fedtaco.screen import (
    Screening,
    find_outlier,
    is_broken,
    judged_losses,
    loss_jumps,
    median_loss,
    screen_norms,
    without_strikes,
)
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import DetectorInput, Verdict
from fedtaco.uploads import UploadedVectors, weighted_sum

MAX_WEIGHT_ERROR = 1e-3
"""How far the sum of a method's aggregation weights may be from 1."""


@dataclass(frozen=True)
class Server:
    """Chooses cohorts, sends instructions, and turns a cohort's results into the next state."""

    spec: RunSpec
    constants: Constants
    cohort_size: int

    @property
    def method(self) -> Method:
        """The method that is run."""
        return self.spec.method

    def initial_state(self, weights: Tensor, buffers: Tensor) -> RunState:
        """Return the state before the first round."""
        server = ServerState(weights, self.method.server_memory(weights, self.constants))
        averaged = self.spec.settings["average_last"]
        first_averaged = max(1, self.constants.rounds - averaged + 1)
        return RunState(
            round=0,
            server=server,
            buffers=buffers,
            memories={},
            expelled=torch.zeros(self.constants.clients, dtype=torch.bool),
            detector_memory=self.spec.detector.initial_memory(weights, self.constants),
            average=start_average(weights, buffers, first_averaged) if averaged else {},
        )

    def choose_cohort(self, state: RunState, available: Tensor | None = None) -> Tensor:
        """Return the clients of the next round, chosen among the ``available`` ones (all by default)."""
        number = state.round + 1
        if state.members == 0:
            raise RunStopped(
                f"Round {number} of {self.method.name}: the detector has expelled every client. "
                "Relax the detector's parameters, or use another detector or none (detector 'off')."
            )
        remaining = ~state.expelled
        active = torch.nonzero(remaining if available is None else remaining & available).flatten()
        if self.cohort_size >= len(active):
            return active
        shuffled = generator(self.spec.settings["seed"], "cohort", number).permutation(len(active))
        return active[torch.from_numpy(shuffled[: self.cohort_size]).sort().values]

    def survey_instructions(self, state: RunState) -> Instructions:
        """Return the instructions for the survey phase, which methods with ``surveys`` run before training."""
        return Instructions("survey", state.round + 1, Broadcast(state.server.weights), state.buffers)

    def absorb(
        self, state: RunState, instructions: Instructions, results: CohortResults
    ) -> tuple[RunState, list[Decision]]:
        """Screen the answers of the survey phase, let the method process the rest, and return what was decided."""
        screening = self._screen(state, instructions, results)
        results.drop(screening.dropped)
        server = state.server
        if len(results.clients):
            uploads = self._uploads(state, results)
            uploads.aggregation_weights = uploads.shares
            server = self.method.absorb(server, uploads)
        return replace(state, server=server, baseline=screening.baseline), list(screening.too_long.values())

    def train_instructions(self, state: RunState, cohort: Tensor) -> Instructions:
        """Return the instructions for the training phase."""
        return Instructions("train", state.round + 1, self.method.broadcast(state.server, cohort), state.buffers)

    def conclude(
        self,
        state: RunState,
        instructions: Instructions,
        results: CohortResults,
        earlier: Sequence[Decision] = (),
    ) -> RoundOutcome:
        """Screen the uploads, let the detector judge them, aggregate the rest, and remove the clients it expels.

        Nobody gets a strike while the model is broken, because honest uploads are then as unusual as forged ones.

        Parameters
        ----------
        state
            The state before the round.
        instructions, results
            What the cohort was asked, and what it sent; the results are changed.
        earlier
            What was decided in the survey phase.
        """
        screening = self._screen(state, instructions, results)
        self._mirror_clipped(state, instructions, results, screening)
        verdict = self.spec.detector.judge(state.detector_memory, self._detector_input(state, instructions, results))
        if screening.is_surge or is_broken(state.baseline):
            verdict = without_strikes(verdict, state.detector_memory, results.clients[~verdict.dropped].tolist())
        scores = dict(zip(results.clients.tolist(), verdict.scores, strict=True))
        results.drop({**screening.dropped, **_dropped_by_detector(verdict, results)})
        decisions = [*earlier, *screening.too_long.values(), *verdict.decisions]
        start = replace(state, baseline=screening.baseline)
        return self._aggregate(start, instructions, results, replace(verdict, decisions=decisions), scores)

    def settle(
        self, before: RunState, instructions: Instructions, outcome: RoundOutcome, measure: Measure
    ) -> tuple[RoundOutcome, dict[str, Any]]:
        """Evaluate a round; with a detector, undo a round that broke the model, and aggregate it without one upload.

        That is the upload whose norm is furthest above the others. In rounds without evaluation, a model that is not
        finite is noticed all the same. A loss is compared with the last one that the same evaluator measured.

        Parameters
        ----------
        before
            The state before the round.
        instructions
            What the cohort was asked.
        outcome
            The round as it was aggregated.
        measure
            Evaluates the model of a round; returns metrics such as ``loss``, as :meth:`RoundOutcome.finish` takes them.

        Returns
        -------
        tuple
            The outcome that counts, and its metrics.

        Raises
        ------
        RunStopped
            If the model or its loss is not finite in the end.
        """
        metrics = self.evaluate(outcome, measure)
        problem = _divergence(outcome.state, metrics)
        losses = judged_losses(metrics["loss"], metrics.get("node_losses"))
        if problem is None and losses is not None and loss_jumps(before.baseline, losses):
            problem = f"the loss rose to {median_loss(losses):.3g}"
        if problem is not None and self.spec.detector.is_active:
            repeated = self._repeat_without_outlier(before, instructions, outcome, problem)
            if repeated is not None:
                outcome, metrics = repeated, self.evaluate(repeated, measure)
        divergence = _divergence(outcome.state, metrics)
        if divergence is not None:
            raise diverged(self.method, self.constants, outcome.state.round, divergence)
        return outcome, metrics

    def mirror(
        self, instructions: Instructions, results: CohortResults, row: int, before: NamedTensors
    ) -> NamedTensors:
        """Return the part of a client's new memory that can be derived from its upload, a row of the results."""
        position, steps = results.cohort.index(int(results.clients[row])), int(results.steps[row])
        local = instructions.context_without_samples(
            position, self.constants.in_round(instructions.round), before, steps
        )
        upload = {name: matrix[row] for name, matrix in results.vectors.items()}
        return self.method.mirror(upload, local)

    def evaluate(self, outcome: RoundOutcome, measure: Measure) -> dict[str, Any]:
        """Evaluate a round, if it is one of every ``eval_every`` or the last one, and return the metrics."""
        if outcome.state.round % self.spec.settings["eval_every"] and outcome.state.round < self.constants.rounds:
            return {"accuracy": None, "loss": None}
        started = perf_counter()
        return {**measure(outcome), "evaluation_seconds": perf_counter() - started}

    def skip_round(self, state: RunState, results: CohortResults, decisions: Sequence[Decision] = ()) -> RoundOutcome:
        """Return the outcome of a round without any usable upload: the model stays as it was."""
        after = replace(state, round=state.round + 1)
        return RoundOutcome(after, results, self._uploads(state, results), decisions)

    def _screen(self, state: RunState, instructions: Instructions, results: CohortResults) -> Screening:
        return screen_norms(results, instructions, state.baseline, self.spec.detector, self.method.unbounded)

    def _mirror_clipped(
        self, state: RunState, instructions: Instructions, results: CohortResults, screening: Screening
    ) -> None:
        """Derive the memories of clients whose uploads were clipped from what the server uses of them."""
        fresh = self.method.client_memory(state.server.weights, self.constants)
        for row in screening.too_long if fresh else ():
            client = int(results.clients[row])
            before, _ = split_memory(state.memories.get(client, fresh))
            results.memories[client] = {**results.memories[client], **self.mirror(instructions, results, row, before)}

    def _detector_input(self, state: RunState, instructions: Instructions, results: CohortResults) -> DetectorInput:
        return DetectorInput(
            broadcast=instructions.broadcast,
            cohort=torch.tensor(results.cohort),
            uploads=self._uploads(state, results),
            round=instructions.round,
            partial_participation=self.cohort_size < self.constants.clients,
            expelled=state.expelled,
            codec=self.spec.codec,
        )

    def _aggregate(
        self,
        state: RunState,
        instructions: Instructions,
        results: CohortResults,
        verdict: Verdict,
        scores: Mapping[int, Mapping[str, float]],
    ) -> RoundOutcome:
        """Return the outcome of a round whose uploads are screened and judged."""
        uploads = self._uploads(state, results)
        after = replace(state, round=instructions.round, detector_memory=verdict.memory)
        if len(results.clients):
            uploads.aggregation_weights = self.method.weigh(state.server, uploads)
            _check_weights(self.method, uploads)
            if uploads.aggregation_weights.any():
                used = set(results.clients.tolist())
                new = {client: memory for client, memory in results.memories.items() if client in used and memory}
                after = replace(
                    after,
                    server=self.method.aggregate(state.server, uploads),
                    buffers=weighted_sum(uploads.aggregation_weights, results.buffers),
                    memories={**state.memories, **new},
                )
        after = self._expel(after, verdict.expelled)
        return RoundOutcome(after, results, uploads, verdict.decisions, scores)

    def _repeat_without_outlier(
        self, before: RunState, instructions: Instructions, outcome: RoundOutcome, problem: str
    ) -> RoundOutcome | None:
        """Aggregate a round again without its longest upload, and without strikes; ``None`` if none is an outlier."""
        results = outcome.results
        outlier = find_outlier(results, instructions) if len(results.clients) > 1 else None
        if outlier is None:
            return None
        row, ratio, limit = outlier
        reason = f"{problem} with this upload, whose norm is {ratio:.3g} times the median"
        decision = Decision(int(results.clients[row]), "dropped", "outlier", ratio, limit, reason)
        results.drop({row: reason})
        verdict = Verdict(outcome.state.detector_memory, torch.empty(0), outcome.decisions, [])
        verdict = without_strikes(verdict, before.detector_memory, results.clients.tolist())
        verdict = replace(verdict, decisions=[*verdict.decisions, decision])
        start = replace(before, baseline=outcome.state.baseline)
        with deterministic_torch():
            return self._aggregate(start, instructions, results, verdict, outcome.scores)

    def _uploads(self, state: RunState, results: CohortResults) -> Uploads:
        constants = replace(self.constants.in_round(state.round + 1), clients=state.members)
        stated = [results.training_losses.get(client) for client in results.clients.tolist()]
        losses = torch.tensor([math.nan if loss is None else loss for loss in stated], dtype=torch.float64)
        return Uploads(
            constants,
            results.clients,
            UploadedVectors(results.vectors),
            results.steps,
            results.shares,
            results.coverage,
            training_losses=losses,
        )

    def _expel(self, state: RunState, clients: Sequence[int]) -> RunState:
        """Return the state without the clients that the detector expels; the method removes what they contributed."""
        expelled = torch.tensor([client for client in sorted(clients) if not state.expelled[client]], dtype=torch.int64)
        if not len(expelled):
            return state
        fresh = self.method.client_memory(state.server.weights, self.constants)
        memories = {client: split_memory(state.memories.get(client, fresh))[0] for client in expelled.tolist()}
        server = self.method.remove_clients(state.server, Expulsion(expelled, state.members, memories))
        return replace(state, server=server, expelled=state.expelled.index_fill(0, expelled, True))


def _check_weights(method: Method, uploads: Uploads) -> None:
    """Raise InvalidInput if there is not one weight per upload, or if the weights do not sum to 1 and are not all 0."""
    weights, count = uploads.aggregation_weights, len(uploads.shares)
    if weights.shape != (count,):
        raise InvalidInput(
            f"weigh of {method.name} returned weights of shape {tuple(weights.shape)} for {count} uploads; return one "
            "weight per upload."
        )
    total = float(weights.sum())
    if weights.any() and abs(total - 1) > MAX_WEIGHT_ERROR:
        raise InvalidInput(
            f"weigh of {method.name} returned weights that sum to {total:.4g}; divide them by their sum."
        )


def _dropped_by_detector(verdict: Verdict, results: CohortResults) -> dict[int, str]:
    reasons = {decision.client: decision.reason for decision in verdict.decisions}
    rows = torch.nonzero(verdict.dropped).flatten().tolist()
    return {row: reasons.get(int(results.clients[row]), "the detector gave no reason") for row in rows}


def _divergence(state: RunState, metrics: Mapping[str, Any]) -> str | None:
    """Return what is not finite, as a clause for an error message; ``None`` if everything is finite."""
    if not all(torch.isfinite(tensor).all() for tensor in (state.server.weights, state.buffers)):
        return "the global model is not finite"
    losses = (metrics.get(name) for name in ("loss", "validation_loss"))
    return None if all(math.isfinite(loss or 0.0) for loss in losses) else "the global model's loss is not finite"


def diverged(method: Method, constants: Constants, number: int, reason: str) -> RunStopped:
    """Return the error for a run that diverged in round ``number``."""
    return RunStopped(
        f"Round {number} of {method.name}: {reason}; the run has diverged. Try a smaller local rate "
        f"(it is {constants.local_lr:g}), standardised inputs or a weaker correction."
    )
