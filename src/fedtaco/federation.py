"""The round loop, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from fedtaco.data import Samples
from fedtaco.device import HOME, quiet_torch
from fedtaco.engines import Engine, SerialEngine
from fedtaco.evaluation import Evaluation, evaluate
from fedtaco.local import Assignment, Job, Worker
from fedtaco.methods import Method, Uploads
from fedtaco.records import ClientRecord, RoundRecord
from fedtaco.rounds import Answers, Conclusion, Coordinator, State, cohort_size, shares_by
from fedtaco.trust import Detector, finite_rows

Weighting = Literal["uniform", "samples"]


@dataclass(frozen=True)
class RoundOutcome:
    """A finished round: the state after it, and its records."""

    state: State
    record: RoundRecord
    clients: list[ClientRecord]


class Federation:
    """Clients, a test set and a method: plays one round after another."""

    def __init__(
        self,
        method: Method,
        worker: Worker,
        test: Samples | None,
        *,
        validation: Samples | None = None,
        steps: Sequence[int] | None = None,
        participation: float = 1.0,
        weighting: Weighting = "uniform",
        detector: Detector | None = None,
        engine: Callable[[Worker], Engine] = SerialEngine,
    ) -> None:
        self.method, self.worker, self.test, self.validation = method, worker, test, validation
        self.model, self.clients, self.plan = worker.model, worker.clients, worker.plan
        self.steps = steps or [self.plan.setting.local_steps] * len(self.clients)
        self.weighting = weighting
        size = cohort_size(participation, len(self.clients))
        self.coordinator = Coordinator(method, self.plan.setting, self.plan.seed, size, detector)
        self.start = self.model.vector.to(HOME, copy=True), self.model.buffers.to(HOME, copy=True)
        self.engine = engine(worker)

    def begin(self) -> State:
        """The state before the first round."""
        return self.coordinator.begin(*self.start)

    def rounds(self, state: State) -> Iterator[RoundOutcome]:
        """Play the rounds that are left after ``state``."""
        with quiet_torch():
            self.worker.warm_up()
        try:
            for _ in range(state.round, self.plan.setting.rounds):
                with quiet_torch():
                    outcome = self._play(state)
                yield outcome
                state = outcome.state
        finally:
            self.engine.close()

    def _play(self, state: State) -> RoundOutcome:
        began = perf_counter()
        coordinator = self.coordinator
        cohort = coordinator.cohort(state)
        if self.method.surveys:
            state = coordinator.absorb(state, self._ask(coordinator.question(state), cohort, state))
        order = coordinator.order(state, cohort)
        concluded = coordinator.conclude(state, order, self._ask(order, cohort, state))
        return RoundOutcome(concluded.state, self._record(concluded, began), concluded.client_records())

    def _ask(self, assignment: Assignment, cohort: Tensor, state: State) -> Answers:
        """Have the cohort work, and keep the uploads that are finite."""
        fresh = self.method.client_memory(assignment.broadcast.start, self.plan.setting)
        asked = cohort.tolist()
        jobs = [
            Job(row, client, self.steps[client], state.memories.get(client, fresh)) for row, client in enumerate(asked)
        ]
        results = self.engine.run(self.method, assignment, jobs)
        finite = finite_rows({**results.vectors, "buffers": results.buffers})
        if not finite.any():
            raise self.coordinator.diverged(assignment.round, "no client sent a finite upload")
        remembered = zip(asked, results.memories, finite.tolist(), strict=True)
        answers = Answers(
            cohort=asked,
            uploads=Uploads(
                setting=self.coordinator.setting_of(state),
                clients=cohort,
                vectors=results.vectors,
                steps=torch.tensor([self.steps[client] for client in asked]),
                shares=shares_by([len(self.clients[c]) if self.weighting == "samples" else 1 for c in asked]),
            ),
            buffers=results.buffers,
            memories={client: memory for client, memory, used in remembered if used and memory},
            seconds=dict(zip(asked, results.seconds, strict=True)),
            dropped={},
        )
        return answers.leaving_out(~finite, dict.fromkeys(asked, "the upload is not finite"))

    def _record(self, concluded: Conclusion, began: float) -> RoundRecord:
        state, answers = concluded.state, concluded.answers
        weights = state.server.weights
        scores = self._evaluate(self.test, weights, state.buffers)
        held_out = self._evaluate(self.validation, weights, state.buffers)
        losses = [evaluation.loss or 0.0 for evaluation in (scores, held_out)]
        if not torch.isfinite(weights).all() or not all(map(math.isfinite, losses)):
            raise self.coordinator.diverged(state.round, "the global model's loss is not finite")
        timed = [seconds for seconds in answers.seconds.values() if seconds is not None]
        return RoundRecord(
            round=state.round,
            accuracy=scores.accuracy,
            loss=scores.loss,
            output_accuracy=self._output_accuracy(state),
            validation_accuracy=held_out.accuracy,
            validation_loss=held_out.loss,
            slowest_client_seconds=max(timed, default=None),
            wall_seconds=perf_counter() - began,
            class_accuracy=scores.class_accuracy,
            cohort=len(answers.cohort),
            dropped=dict(answers.dropped),
            decisions=concluded.decisions,
        )

    def _output_accuracy(self, state: State) -> float | None:
        output = self.method.output(state.server)
        if state.round < self.plan.setting.rounds or output is state.server.weights:
            return None
        return self._evaluate(self.test, output, state.buffers).accuracy

    def _evaluate(self, samples: Samples | None, weights: Tensor, buffers: Tensor) -> Evaluation:
        if samples is None:
            return Evaluation(None, None)
        return evaluate(self.model, samples, self.plan.loss, weights, buffers)
