"""Simulated clients: the clients of a federation on this machine, run by an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from torch import Tensor

from fedtaco.client import ClientRunner
from fedtaco.client_evaluation import ClientEvaluator, evaluate_own_models
from fedtaco.cohort import ClientJob, CohortResults, Instructions, Traffic
from fedtaco.compression import Compression, without_residuals
from fedtaco.data import Samples
from fedtaco.device import deterministic_torch
from fedtaco.diagnostics import Diagnoser, Training
from fedtaco.engines import AdversarialEngine, Engine
from fedtaco.evaluation import Evaluation, Evaluator, OwnMetrics
from fedtaco.federation import Diagnose, Federation
from fedtaco.methods import NamedTensors
from fedtaco.records import ClientEvaluation, RoundDiagnostics
from fedtaco.run_state import RoundOutcome, RunState
from fedtaco.screen import find_invalid
from fedtaco.server import Server, diverged
from fedtaco.settings.combinations import check_steps
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import NO_ADVERSARIES, AdversarialClients
from fedtaco.unequal_work import RoundWork


@dataclass(frozen=True)
class SimulationData:
    """The samples of a simulation besides those that clients train on, and what its clients do."""

    test: Samples | None = None
    """Samples to evaluate the global model on."""
    validation: Samples | None = None
    """Held-out samples of all clients."""
    client_tests: Mapping[int, Samples] = field(default_factory=dict)
    """Samples of some clients to evaluate the final model on, by client."""
    steps: Sequence[int] | None = None
    """Local steps of each client; K for all by default."""
    adversaries: AdversarialClients = NO_ADVERSARIES
    """Clients that misbehave."""


class SimulatedClients:
    """The clients of a federation on this machine.

    With personal layers, there is no global model: the figures of a round are then means over the honest clients, each
    with its own model, on the test set and on its own held-out samples; without a test set, on the client's own.

    Parameters
    ----------
    spec
        What is run.
    runner
        Trains the clients.
    engine
        Runs the cohorts.
    evaluator
        Evaluates the global model.
    data
        Samples to evaluate on, and what clients do.
    """

    def __init__(
        self, spec: RunSpec, runner: ClientRunner, engine: Engine, evaluator: Evaluator, data: SimulationData
    ) -> None:
        self.spec, self.runner, self.engine, self.evaluator, self.data = spec, runner, engine, evaluator, data
        self.steps = data.steps or [runner.config.constants.local_steps] * len(runner.clients)
        check_steps(spec.method, self.steps)
        self.by_samples = spec.settings["weighting"] == "samples"
        self.counts = [len(samples) if self.by_samples else 1 for samples in runner.clients.values()]
        """Weight of each client's upload before normalisation."""
        self.compression = Compression(spec, runner.config.constants)
        self.adversaries = AdversarialEngine(engine, runner, data.adversaries)
        self.honest = sorted(set(range(len(runner.clients))) - data.adversaries.clients)
        self.own_tests = data.client_tests if data.test is None else dict.fromkeys(self.honest, data.test)
        """What the models of clients are evaluated on after a round if they have personal layers."""

    def federation(self) -> Federation:
        """Return the federation of these clients and a server."""
        server = Server(self.spec, self.runner.config.constants, self.spec.cohort_size(len(self.runner.clients)))
        diagnose = self.make_diagnose() if self.spec.settings["diagnose"] else None
        return Federation(server, self, self.runner.model, diagnose)

    # The loop over rounds calls these

    def start(self, state: RunState) -> None:
        with deterministic_torch():
            self.runner.warm_up()

    def available(self, state: RunState) -> None:
        return None

    def new_memory(self, instructions: Instructions) -> NamedTensors:
        memory = self.runner.new_memory(self.spec.method, instructions.broadcast.start)
        return {**memory, **self.compression.initial_residuals(instructions, memory)}

    def run(self, state: RunState, instructions: Instructions, cohort: Tensor) -> CohortResults:
        work = self._work(cohort.tolist(), instructions.round)
        sent = len(cohort) * instructions.nbytes
        if len(work.absent) == len(cohort):
            results = CohortResults.unanswered(work.absent)
            results.traffic, results.simulated_duration = Traffic(0, sent), work.duration
            return results
        training = self._training(state, instructions, work)
        with deterministic_torch():
            results = self.adversaries.run(
                self.spec.method,
                training.instructions,
                [without_residuals(job) for job in training.jobs],
                state.adversary_memories,
            )
            uploaded = self.compression.compress_cohort(training.instructions, training.jobs, results)
        results.traffic, results.simulated_duration = Traffic(uploaded, sent), work.duration
        results.cohort, results.dropped = list(work.steps), dict(work.absent)
        members = sum(compress(self.counts, (~state.expelled).tolist()))
        results.coverage = sum(job.count for job in training.jobs) / members
        results.drop(find_invalid(results.vectors, results.buffers, self.runner.model.min_buffers))
        if not len(results.clients):
            reason = "no client sent a finite upload"
            raise diverged(self.spec.method, self.runner.config.constants, instructions.round, reason)
        return results

    def evaluate(self, outcome: RoundOutcome) -> dict[str, Any]:
        state, weights = outcome.state, outcome.state.server.weights
        with deterministic_torch():
            test = self._evaluate_test(state, weights, self.spec.task.metrics)
            own_validation = self.data.client_tests if self.data.validation is not None else {}
            validation = self._evaluate(self.data.validation, own_validation, state, weights)
            is_last = state.round == self.runner.config.constants.rounds
            output_accuracy = self.evaluate_output(state) if is_last else None
        return {
            "accuracy": test.accuracy,
            "loss": test.loss,
            "output_accuracy": output_accuracy,
            "validation_accuracy": validation.accuracy,
            "validation_loss": validation.loss,
            "class_accuracy": test.class_accuracy,
            "balanced_accuracy": test.balanced_accuracy,
            "metrics": test.metrics,
        }

    def end_round(self, outcome: RoundOutcome) -> RunState:
        memories = {**outcome.state.adversary_memories, **outcome.results.adversary_memories}
        return replace(outcome.state, adversary_memories=memories)

    def stop(self) -> None:
        self.engine.close()

    # After a round or a run

    def make_diagnose(self) -> Diagnose:
        """Return the function that diagnoses a round."""
        diagnoser = Diagnoser(self.spec.method, self.runner, self.honest, by_samples=self.by_samples)

        def diagnose(state: RunState, instructions: Instructions, outcome: RoundOutcome) -> RoundDiagnostics:
            training = self._training(state, instructions, self._work(outcome.results.cohort, instructions.round))
            jobs = [without_residuals(job) for job in training.jobs]
            return diagnoser.diagnose(replace(training, jobs=jobs), outcome)

        return diagnose

    def evaluate_clients(self, state: RunState) -> list[ClientEvaluation]:
        """Evaluate the final model on the clients' own samples; empty if there are none."""
        fine_tune_steps = self.spec.settings["fine_tune_steps"]
        at_once = self.spec.cohort_size(len(self.runner.clients))
        return ClientEvaluator(self.evaluator, self.engine, self.data.client_tests, fine_tune_steps, at_once).evaluate(
            state
        )

    def evaluate_average(self, state: RunState) -> float | None:
        """Return the test accuracy of the average of the last models; ``None`` if there is none, or no test set."""
        if state.averaged is None:
            return None
        weights, buffers = state.averaged
        with deterministic_torch():
            return self._evaluate_test(replace(state, buffers=buffers), weights).accuracy

    def evaluate_output(self, state: RunState) -> float | None:
        """Return the test accuracy of the method's output; ``None`` if that is the global model, or without a test."""
        output = self.spec.method.output(state.server)
        if output is state.server.weights:
            return None
        with deterministic_torch():
            return self._evaluate_test(state, output).accuracy

    def _work(self, cohort: Sequence[int], round_number: int) -> RoundWork:
        """Return what the clients of a cohort do in a round; the same in both of its phases."""
        full = {client: self.steps[client] for client in cohort}
        local_steps = self.runner.config.constants.local_steps
        return self.spec.work.in_round(self.spec.settings["seed"], round_number, full, local_steps)

    def _training(self, state: RunState, instructions: Instructions, work: RoundWork) -> Training:
        """Return what the clients that answer are asked to do in one phase of a round."""
        fresh, cohort = self.new_memory(instructions), list(work.steps)
        present = [row for row, client in enumerate(cohort) if client not in work.absent]
        jobs = [
            ClientJob(row, client, work.steps[client], state.memories.get(client, fresh), self.counts[client])
            for row, client in enumerate(cohort[place] for place in present)
        ]
        return Training(state, instructions.for_rows(present), jobs)

    def _evaluate_test(self, state: RunState, weights: Tensor, metrics: OwnMetrics | None = None) -> Evaluation:
        return self._evaluate(self.data.test, self.own_tests, state, weights, metrics)

    def _evaluate(
        self,
        samples: Samples | None,
        own_samples: Mapping[int, Samples],
        state: RunState,
        weights: Tensor,
        metrics: OwnMetrics | None = None,
    ) -> Evaluation:
        """Evaluate the global model on ``samples``; with personal layers, the clients' models on ``own_samples``."""
        if self.runner.model.personal_names:
            return evaluate_own_models(self.evaluator, own_samples, state, weights, metrics)
        if samples is None:
            return Evaluation(None, None)
        return self.evaluator.evaluate(samples, weights, state.buffers, metrics)
