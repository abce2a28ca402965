"""The simulator: server and clients of a run on one machine."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from time import perf_counter
from typing import Any, Literal

from torch import Tensor

from fedtaco.client import ClientRunner
from fedtaco.client_evaluation import ClientEvaluator, evaluate_own_models
from fedtaco.codecs import NO_CODEC, Codec
from fedtaco.cohort import ClientJob, CohortResults, Instructions, Traffic
from fedtaco.compression import Compression, without_residuals
from fedtaco.data import Samples
from fedtaco.device import CPU, deterministic_torch
from fedtaco.diagnostics import Diagnoser, Training
from fedtaco.diagnostics.stability import monitor
from fedtaco.engines import AdversarialEngine, Engine, SerialEngine
from fedtaco.evaluation import Evaluation, Evaluator, OwnMetrics
from fedtaco.methods import Method, NamedTensors, check_unequal_steps
from fedtaco.records import ClientEvaluation, Decision
from fedtaco.run_state import FinishedRound, RoundOutcome, RunState
from fedtaco.screen import find_invalid
from fedtaco.server import Server, cohort_size
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients, Detector, Off
from fedtaco.unequal_work import ClientWork, RoundWork

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
        Samples to evaluate the global model on, or ``None``. With personal layers, there is no global model: the
        figures of a round are then means over the honest clients, each with its own model, on the test set and on its
        own held-out samples; without a test set, on the client's own.
    evaluator
        Evaluates the global model; by default in this process.
    metrics
        Own metrics, computed on the test set.
    client_tests
        Samples of some clients on which :meth:`evaluate_clients` evaluates the final model, by client.
    fine_tune_steps
        Steps of fine-tuning after which it evaluates the model once more; 0 for none.
    eval_every
        Number of rounds between two evaluations; the last round is always evaluated.
    average_last
        Number of rounds, the last ones, whose models are averaged; 0 for none.
    steps
        Local steps of each client; the run's K for all by default.
    work
        The share of these steps that clients take, and which clients do not answer; by default all do all their work.
    participation
        Fraction of the clients that take part in a round.
    weighting
        How uploads are weighted before the method's own weighting: ``uniform``, or by the client's number of
        ``samples``.
    detector
        Judges the uploads of every round.
    codec
        Compresses the uploads.
    adversaries
        Clients that misbehave.
    engine
        Runs the cohorts; one client after another by default.
    diagnose
        Whether to diagnose each round; see :class:`~fedtaco.diagnostics.Diagnoser`.
    """

    def __init__(
        self,
        method: Method,
        runner: ClientRunner,
        test: Samples | None,
        *,
        validation: Samples | None = None,
        evaluator: Evaluator | None = None,
        metrics: OwnMetrics | None = None,
        eval_every: int = 1,
        average_last: int = 0,
        client_tests: Mapping[int, Samples] | None = None,
        fine_tune_steps: int = 0,
        steps: Sequence[int] | None = None,
        work: ClientWork | None = None,
        participation: float = 1.0,
        weighting: Weighting = "uniform",
        detector: Detector | None = None,
        codec: Codec = NO_CODEC,
        adversaries: AdversarialClients = NO_ADVERSARIES,
        engine: Engine | None = None,
        diagnose: bool = False,
    ) -> None:
        self.method, self.runner, self.test, self.validation = method, runner, test, validation
        self.model, self.clients, self.config = runner.model, runner.clients, runner.config
        self.steps = steps or [self.config.constants.local_steps] * len(self.clients)
        self.work = work or ClientWork()
        if len(set(self.steps)) > 1 or not self.work.local_work.is_full:
            check_unequal_steps(method)
        self.counts = [len(samples) if weighting == "samples" else 1 for samples in self.clients]
        """Weight of each client's upload before normalisation."""
        size = cohort_size(participation, len(self.clients))
        constants, seed = self.config.constants, self.config.seed
        self.server = Server(method, constants, seed, size, detector or Off(), eval_every, codec, average_last)
        self.compression = Compression(method, codec, seed, constants)
        self.evaluator = evaluator or Evaluator(self.model, self.config.loss, self.config.seed)
        self.metrics = metrics or {}
        honest = sorted(set(range(len(self.clients))) - adversaries.clients)
        self.own_tests = dict.fromkeys(honest, test) if test is not None else dict(client_tests or {})
        """What the models of clients are evaluated on after a round if they have personal layers."""
        self.own_validation = {} if validation is None else dict(client_tests or {})
        """The clients' own held-out samples, if there are any."""
        self.on_evaluation: Callable[[int], None] = lambda _: None
        """Called before each evaluation, with the number of the round."""
        self.start = self.model.vector.to(CPU, copy=True), self.model.buffers.to(CPU, copy=True)
        self.engine = engine or SerialEngine(runner)
        self.adversaries = AdversarialEngine(self.engine, runner, adversaries)
        self.diagnoser = Diagnoser(method, runner, honest, by_samples=weighting == "samples") if diagnose else None
        self.client_evaluator = ClientEvaluator(
            self.evaluator, self.engine, client_tests or {}, fine_tune_steps, at_once=size
        )

    def initial_state(self) -> SimulatorState:
        """Return the state before the first round."""
        state = self.server.initial_state(*self.start)
        return SimulatorState(**vars(state))

    def new_memory(self, instructions: Instructions) -> NamedTensors:
        """Return the memory of a client before its first round; ``instructions`` are those of any round."""
        memory = self.runner.new_memory(self.method, instructions.broadcast.start)
        return {**memory, **self.compression.initial_residuals(instructions, memory)}

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

    def evaluate_clients(self, state: RunState) -> list[ClientEvaluation]:
        """Evaluate the final model on the clients' own samples; empty if there are none."""
        if not self.client_evaluator.samples:
            return []
        self.on_evaluation(state.round)
        return self.client_evaluator.evaluate(state)

    def evaluate_average(self, state: RunState) -> float | None:
        """Return the test accuracy of the average of the last models; ``None`` if there is none, or no test set."""
        if state.averaged is None:
            return None
        self.on_evaluation(state.round)
        weights, buffers = state.averaged
        with deterministic_torch():
            return self._evaluate_test(replace(state, buffers=buffers), weights).accuracy

    def evaluate_output(self, state: RunState) -> float | None:
        """Return the test accuracy of the method's output; ``None`` if that is the global model, or without a test."""
        output = self.method.output(state.server)
        if output is state.server.weights:
            return None
        with deterministic_torch():
            return self._evaluate_test(state, output).accuracy

    def _run_round(self, state: RunState) -> FinishedRound:
        started = perf_counter()
        cohort = self.server.choose_cohort(state)
        full = {client: self.steps[client] for client in cohort.tolist()}
        work = self.work.in_round(self.config.seed, state.round + 1, full, self.config.constants.local_steps)
        if len(work.absent) < len(cohort):
            training, outcome, metrics = self._train(state, cohort, work)
        else:
            instructions = self.server.train_instructions(state, cohort)
            training, results = Training(state, instructions.for_rows([]), []), CohortResults.unanswered(work.absent)
            results.traffic = Traffic(0, len(cohort) * instructions.nbytes)
            outcome = self.server.skip_round(state, results)
            metrics = self.server.evaluate(outcome.state, self._measure)
        finished = outcome.finish(perf_counter() - started, simulated_duration=work.duration, **metrics)
        if self.diagnoser is None:
            return finished
        trained = replace(training, jobs=[without_residuals(job) for job in training.jobs])
        return replace(finished, diagnostics=self.diagnoser.diagnose(trained, outcome))

    def _train(self, state: RunState, cohort: Tensor, work: RoundWork) -> tuple[Training, RoundOutcome, dict[str, Any]]:
        """Run a round in which clients answer; return its training, its outcome and the metrics of its evaluation."""
        memories = state.adversary_memories if isinstance(state, SimulatorState) else {}
        decisions: list[Decision] = []
        traffic = Traffic()
        if self.method.surveys:
            survey = self.server.survey_instructions(state)
            results, _ = self._run_cohort(self._training(state, survey, work), work, memories)
            traffic += results.traffic
            state, decisions = self.server.absorb(state, survey, results)
        instructions = self.server.train_instructions(state, cohort)
        training = self._training(state, instructions, work)
        results, memories = self._run_cohort(training, work, memories)
        results.traffic += traffic
        outcome = self.server.conclude(state, instructions, results, decisions)
        outcome, metrics = self.server.settle(state, instructions, outcome, self._measure)
        metrics |= monitor(self.method, state.server, outcome.uploads)
        concluded = SimulatorState(**{**vars(outcome.state), "adversary_memories": memories})
        return training, replace(outcome, state=concluded), metrics

    def _training(self, state: RunState, instructions: Instructions, work: RoundWork) -> Training:
        """Return what the clients that answer are asked to do in one phase of a round."""
        fresh, cohort = self.new_memory(instructions), list(work.steps)
        present = [row for row, client in enumerate(cohort) if client not in work.absent]
        jobs = [
            ClientJob(row, client, work.steps[client], state.memories.get(client, fresh), self.counts[client])
            for row, client in enumerate(cohort[place] for place in present)
        ]
        return Training(state, instructions.for_rows(present), jobs)

    def _run_cohort(
        self, training: Training, work: RoundWork, memories: Mapping[int, NamedTensors]
    ) -> tuple[CohortResults, Mapping[int, NamedTensors]]:
        """Run the clients that answer and drop invalid uploads; return the results and the new memories of adversaries.

        ``memories`` holds the memories of adversaries before the round.
        """
        instructions, jobs = training.instructions, training.jobs
        results, memories = self.adversaries.run(
            self.method, instructions, [without_residuals(job) for job in jobs], memories
        )
        sent = self.compression.compress_cohort(instructions, jobs, results)
        results.traffic = Traffic(sent, len(work.steps) * instructions.nbytes)
        results.cohort, results.dropped = list(work.steps), dict(work.absent)
        results.coverage = sum(job.count for job in jobs) / self._member_counts(training.before)
        results.drop(find_invalid(results.vectors, results.buffers, self.model.min_buffers))
        if not len(results.clients):
            raise self.server.diverged(instructions.round, "no client sent a finite upload")
        return results, memories

    def _member_counts(self, state: RunState) -> float:
        """Return the sum of the counts of all clients that are not expelled."""
        return sum(compress(self.counts, (~state.detector_memory["expelled"]).tolist()))

    def _measure(self, state: RunState) -> dict[str, Any]:
        self.on_evaluation(state.round)
        test = self._evaluate_test(state, state.server.weights, self.metrics)
        validation = self._evaluate(self.validation, self.own_validation, state, state.server.weights)
        return {
            "accuracy": test.accuracy,
            "loss": test.loss,
            "output_accuracy": self.evaluate_output(state) if state.round == self.config.constants.rounds else None,
            "validation_accuracy": validation.accuracy,
            "validation_loss": validation.loss,
            "class_accuracy": test.class_accuracy,
            "balanced_accuracy": test.balanced_accuracy,
            "metrics": test.metrics,
        }

    def _evaluate_test(self, state: RunState, weights: Tensor, metrics: OwnMetrics | None = None) -> Evaluation:
        return self._evaluate(self.test, self.own_tests, state, weights, metrics)

    def _evaluate(
        self,
        samples: Samples | None,
        own_samples: Mapping[int, Samples],
        state: RunState,
        weights: Tensor,
        metrics: OwnMetrics | None = None,
    ) -> Evaluation:
        """Evaluate the global model on ``samples``; with personal layers, the clients' models on ``own_samples``."""
        if self.model.personal_names:
            return evaluate_own_models(self.evaluator, own_samples, state, weights, metrics)
        if samples is None:
            return Evaluation(None, None)
        return self.evaluator.evaluate(samples, weights, state.buffers, metrics)
