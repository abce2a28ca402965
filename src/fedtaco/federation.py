"""The federation: the only loop over rounds, with clients on this machine or across a network."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol

from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions, Traffic
from fedtaco.device import CPU, deterministic_torch
from fedtaco.diagnostics.stability import examine
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel
from fedtaco.records import Decision, RoundDiagnostics
from fedtaco.run_state import FinishedRound, RoundOutcome, RunState
from fedtaco.server import Server

Diagnose = Callable[[RunState, Instructions, RoundOutcome], RoundDiagnostics]
"""Diagnoses a round, given the state before its training, the instructions for it, and its outcome."""


class Clients(Protocol):
    """The clients of a federation, as the loop over rounds sees them. A client that fails is an absent one."""

    def start(self, state: RunState) -> None:
        """Prepare for the rounds that follow ``state``."""
        ...

    def available(self, state: RunState) -> Tensor | None:
        """Return a mask of the clients that can take part in the next round; ``None`` stands for all."""
        ...

    def new_memory(self, instructions: Instructions) -> NamedTensors:
        """Return the memory of a client before its first round; ``instructions`` are those of any round."""
        ...

    def run(self, state: RunState, instructions: Instructions, cohort: Tensor) -> CohortResults:
        """Let a cohort train, or answer a survey, and return the uploads that can be used."""
        ...

    def evaluate(self, outcome: RoundOutcome) -> dict[str, Any]:
        """Evaluate the model of a round, and return fields of its record, ``loss`` among them."""
        ...

    def end_round(self, outcome: RoundOutcome) -> RunState:
        """Return the state after a round, with what the clients' side keeps for the next one."""
        ...

    def stop(self) -> None:
        """Release processes and memory."""
        ...


class Federation:
    """A server and its clients, which run round after round.

    Parameters
    ----------
    server
        Chooses cohorts, and turns their uploads into the next state.
    clients
        Train and evaluate.
    model
        The model before the first round.
    diagnose
        Diagnoses each round, or ``None``. The time it takes is not measured.
    """

    def __init__(self, server: Server, clients: Clients, model: FlatModel, diagnose: Diagnose | None = None) -> None:
        self.server, self.clients, self.model, self.diagnose = server, clients, model, diagnose
        self.initial = server.initial_state(model.vector.to(CPU, copy=True), model.buffers.to(CPU, copy=True))
        """The state before the first round."""
        self.on_evaluation: Callable[[int], None] = lambda _: None
        """Called before each evaluation, with the number of the round."""

    def rounds(self, state: RunState) -> Generator[FinishedRound, None, None]:
        """Run the rounds that follow ``state`` and yield each one when it is finished."""
        self.clients.start(state)
        try:
            for _ in range(state.round, self.server.constants.rounds):
                finished = self._run_round(state)
                yield finished
                state = finished.state
        finally:
            self.clients.stop()

    def _run_round(self, before: RunState) -> FinishedRound:
        started = perf_counter()
        cohort = self.server.choose_cohort(before, self.clients.available(before))
        state, instructions, results, decisions = self._train(before, cohort)
        outcome, metrics = self._aggregate(state, instructions, results, decisions)
        with deterministic_torch():
            found = examine(self.server.method, state.server, outcome.uploads)
            if found is not None:
                outcome = replace(outcome, sides=found.sides)
                metrics |= {"gain": found.gain, "warning": found.warning}
            outcome = replace(outcome, state=self.clients.end_round(outcome))
            finished = outcome.finish(perf_counter() - started, **metrics)
            if self.diagnose is None:
                return finished
            return replace(finished, diagnostics=self.diagnose(state, instructions, outcome))

    def _train(
        self, state: RunState, cohort: Tensor
    ) -> tuple[RunState, Instructions, CohortResults, Sequence[Decision]]:
        """Let a cohort train, after a survey if the method has one.

        Returns
        -------
        tuple
            The state, which a survey changes, the instructions and results of the last phase, and what was decided
            about the answers to the survey. Without a usable answer to the survey, nobody trains.
        """
        decisions: Sequence[Decision] = ()
        traffic = Traffic()
        if self.server.method.surveys:
            instructions = self.server.survey_instructions(state)
            results = self.clients.run(state, instructions, cohort)
            if len(results.clients):
                with deterministic_torch():
                    state, decisions = self.server.absorb(state, instructions, results)
            if not len(results.clients):
                return state, instructions, results, ()
            traffic = results.traffic
        with deterministic_torch():
            instructions = self.server.train_instructions(state, cohort)
        results = self.clients.run(state, instructions, cohort)
        results.traffic += traffic
        return state, instructions, results, decisions

    def _aggregate(
        self, state: RunState, instructions: Instructions, results: CohortResults, decisions: Sequence[Decision]
    ) -> tuple[RoundOutcome, dict[str, Any]]:
        """Aggregate and evaluate; a round without a usable upload leaves the model as it was."""
        if not len(results.clients):
            outcome = self.server.skip_round(state, results)
            return outcome, self.server.evaluate(outcome, self._evaluate)
        with deterministic_torch():
            outcome = self.server.conclude(state, instructions, results, decisions)
        return self.server.settle(state, instructions, outcome, self._evaluate)

    def _evaluate(self, outcome: RoundOutcome) -> dict[str, Any]:
        self.on_evaluation(outcome.state.round)
        return self.clients.evaluate(outcome)
