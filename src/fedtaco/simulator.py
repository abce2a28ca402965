"""The simulator: server and clients of a run on one machine."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

from torch import Tensor

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, CohortResults, Instructions
from fedtaco.data import Samples
from fedtaco.device import CPU, deterministic_torch
from fedtaco.engines import AdversarialEngine, Engine, SerialEngine
from fedtaco.evaluation import Evaluation, evaluate
from fedtaco.methods import Method, NamedTensors
from fedtaco.records import Decision
from fedtaco.screen import find_invalid
from fedtaco.server import FinishedRound, RunState, Server, cohort_size
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients, Detector, Off

Weighting = Literal["uniform", "samples"]


@dataclass(frozen=True)
class SimulatorState(RunState):
    """The state of a run and the memories of simulated adversaries, which a real server would not know."""

    adversary_memories: Mapping[int, NamedTensors] = field(default_factory=dict)


class Simulator:
    """Runs a method round by round with simulated clients on this machine.

    Parameters
    ----------
    method
        The method to run.
    runner
        Trains the clients.
    test, validation
        Samples to evaluate the global model on after every round, or ``None``.
    steps
        Local steps of each client; the run's K for all by default.
    participation
        Fraction of the clients that take part in a round.
    weighting
        How uploads are weighted before the method's own weighting: ``uniform``, or by the client's number of
        ``samples``.
    detector
        Judges the uploads of every round.
    adversaries
        Clients that misbehave.
    engine
        Runs the cohorts; one client after another by default.
    """

    def __init__(
        self,
        method: Method,
        runner: ClientRunner,
        test: Samples | None,
        *,
        validation: Samples | None = None,
        steps: Sequence[int] | None = None,
        participation: float = 1.0,
        weighting: Weighting = "uniform",
        detector: Detector | None = None,
        adversaries: AdversarialClients = NO_ADVERSARIES,
        engine: Engine | None = None,
    ) -> None:
        self.method, self.runner, self.test, self.validation = method, runner, test, validation
        self.model, self.clients, self.config = runner.model, runner.clients, runner.config
        self.steps = steps or [self.config.constants.local_steps] * len(self.clients)
        self.weighting = weighting
        size = cohort_size(participation, len(self.clients))
        self.server = Server(method, self.config.constants, self.config.seed, size, detector or Off())
        self.start = self.model.vector.to(CPU, copy=True), self.model.buffers.to(CPU, copy=True)
        self.engine = engine or SerialEngine(runner)
        self.adversaries = AdversarialEngine(self.engine, runner, adversaries)

    def initial_state(self) -> SimulatorState:
        """Return the state before the first round."""
        state = self.server.initial_state(*self.start)
        return SimulatorState(**vars(state))

    def rounds(self, state: RunState) -> Generator[FinishedRound, None, None]:
        """Run the rounds that follow ``state`` and yield each one when it is finished."""
        with deterministic_torch():
            self.runner.warm_up()
        try:
            for _ in range(state.round, self.config.constants.rounds):
                with deterministic_torch():
                    finished = self._run_round(state)
                yield finished
                state = finished.state
        finally:
            self.engine.close()

    def _run_round(self, state: RunState) -> FinishedRound:
        started = perf_counter()
        memories = state.adversary_memories if isinstance(state, SimulatorState) else {}
        cohort, decisions = self.server.choose_cohort(state), list[Decision]()
        if self.method.surveys:
            survey = self.server.survey_instructions(state)
            results, _ = self._run_cohort(survey, cohort, state, memories)
            state, decisions = self.server.absorb(state, survey, results)
        instructions = self.server.train_instructions(state, cohort)
        results, memories = self._run_cohort(instructions, cohort, state, memories)
        outcome = self.server.conclude(state, instructions, results, decisions)
        outcome, metrics = self.server.settle(state, instructions, outcome, self._measure)
        concluded = SimulatorState(**{**vars(outcome.state), "adversary_memories": memories})
        return replace(outcome, state=concluded).finish(perf_counter() - started, **metrics)

    def _run_cohort(
        self, instructions: Instructions, cohort: Tensor, state: RunState, memories: Mapping[int, NamedTensors]
    ) -> tuple[CohortResults, Mapping[int, NamedTensors]]:
        """Run the cohort and drop invalid uploads; return the results and the new memories of adversaries.

        ``memories`` holds the memories of adversaries before the round.
        """
        fresh = self.runner.new_memory(self.method, instructions.broadcast.start)
        jobs = [
            ClientJob(
                row,
                client,
                self.steps[client],
                state.memories.get(client, fresh),
                len(self.clients[client]) if self.weighting == "samples" else 1,
            )
            for row, client in enumerate(cohort.tolist())
        ]
        results, memories = self.adversaries.run(self.method, instructions, jobs, memories)
        results.drop(find_invalid(results.vectors, results.buffers, self.model.min_buffers))
        if not len(results.clients):
            raise self.server.diverged(instructions.round, "no client sent a finite upload")
        return results, memories

    def _measure(self, state: RunState) -> dict[str, Any]:
        test, validation = (
            self._evaluate(samples, state.server.weights, state.buffers) for samples in (self.test, self.validation)
        )
        return {
            "accuracy": test.accuracy,
            "loss": test.loss,
            "output_accuracy": self._output_accuracy(state),
            "validation_accuracy": validation.accuracy,
            "validation_loss": validation.loss,
            "class_accuracy": test.class_accuracy,
        }

    def _output_accuracy(self, state: RunState) -> float | None:
        output = self.method.output(state.server)
        if state.round < self.config.constants.rounds or output is state.server.weights:
            return None
        return self._evaluate(self.test, output, state.buffers).accuracy

    def _evaluate(self, samples: Samples | None, weights: Tensor, buffers: Tensor) -> Evaluation:
        if samples is None:
            return Evaluation(None, None)
        return evaluate(self.model, samples, self.config.loss, weights, buffers)
