"""The round loop, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from fedtaco.data import Samples
from fedtaco.device import HOME
from fedtaco.engines import Engine, Results, SerialEngine
from fedtaco.errors import RunStopped
from fedtaco.evaluation import Evaluation, evaluate
from fedtaco.local import Assignment, Job, Worker
from fedtaco.methods import Broadcast, Memory, Method, Server, Uploads, weighted_sum
from fedtaco.randomness import generator
from fedtaco.records import ClientRecord, RoundRecord
from fedtaco.trust import Detector, finite_rows
from fedtaco.trust.detector import clean_record

Weighting = Literal["uniform", "samples"]


@dataclass(frozen=True)
class State:
    """All that outlives a round: plain data, from which a run goes on as if it had never stopped."""

    round: int
    server: Server
    buffers: Tensor
    memories: Mapping[int, Memory]
    trust: Memory


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
        self.weighting, self.detector = weighting, detector
        self.cohort_size = cohort_size(participation, len(self.clients))
        self.start = self.model.vector.to(HOME, copy=True), self.model.buffers.to(HOME, copy=True)
        self.engine = engine(worker)

    def begin(self) -> State:
        """The state before the first round."""
        weights, buffers = self.start
        server = Server(weights, self.method.server_memory(weights, self.plan.setting))
        return State(0, server, buffers, {}, clean_record(len(self.clients)))

    def rounds(self, state: State) -> Iterator[RoundOutcome]:
        """Play the rounds that are left after ``state``."""
        with _quiet_torch():
            self.worker.warm_up()
        try:
            for _ in range(state.round, self.plan.setting.rounds):
                with _quiet_torch():
                    outcome = self._play(state)
                yield outcome
                state = outcome.state
        finally:
            self.engine.close()

    def _play(self, state: State) -> RoundOutcome:
        began = perf_counter()
        method, number = self.method, state.round + 1
        cohort = self._cohort(state, number)
        if method.surveys:
            question = Assignment("survey", number, Broadcast(state.server.weights), state.buffers)
            answers = self._ask(question, cohort, state.memories)
            state = replace(state, server=method.absorb(state.server, answers.uploads))
        order = Assignment("train", number, method.broadcast(state.server, cohort), state.buffers)
        answers = self._ask(order, cohort, state.memories)
        uploads = answers.uploads
        uploads.weights = method.weigh(state.server, uploads)
        after = State(
            round=number,
            server=method.aggregate(state.server, uploads),
            buffers=weighted_sum(uploads.weights, answers.results.buffers[answers.valid]),
            memories={**state.memories, **answers.memories()},
            trust=state.trust,
        )
        if self.detector is not None:
            after = self._judge(self.detector, after, uploads)
        record = self._record(after, answers, began)
        return RoundOutcome(after, record, _client_records(after, answers))

    def _judge(self, detector: Detector, state: State, uploads: Uploads) -> State:
        partial = self.cohort_size < len(self.clients)
        trust = detector.judge(state.trust, uploads, partial=partial)
        newly = torch.nonzero(trust["expelled"] & ~state.trust["expelled"]).flatten()
        server = self.method.without(state.server, newly) if len(newly) else state.server
        return replace(state, server=server, trust=trust)

    def _cohort(self, state: State, number: int) -> Tensor:
        active = torch.nonzero(~state.trust["expelled"]).flatten()
        if len(active) == 0:
            raise RunStopped(
                f"Round {number} of {self.method.name}: the detector has expelled every client. "
                "Raise taco.kappa or taco.max_strikes, or use --detector off."
            )
        if self.cohort_size >= len(active):
            return active
        order = generator(self.plan.seed, "cohort", number).permutation(len(active))
        return active[torch.from_numpy(order[: self.cohort_size]).sort().values]

    def _ask(self, assignment: Assignment, cohort: Tensor, memories: Mapping[int, Memory]) -> _Answers:
        """Have the cohort work, and keep the uploads that are finite."""
        fresh = self.method.client_memory(assignment.broadcast.start, self.plan.setting)
        jobs = [
            Job(row, client, self.steps[client], memories.get(client, fresh))
            for row, client in enumerate(cohort.tolist())
        ]
        results = self.engine.run(self.method, assignment, jobs)
        finite = finite_rows({**results.vectors, "buffers": results.buffers})
        if not finite.any():
            raise self._diverged(assignment.round, "no client sent a finite upload")
        clients = cohort[finite]
        counts = [len(self.clients[c]) if self.weighting == "samples" else 1 for c in clients.tolist()]
        shares = torch.tensor(counts, dtype=torch.float64)
        uploads = Uploads(
            setting=self.plan.setting,
            clients=clients,
            vectors={n: t if finite.all() else t[finite] for n, t in results.vectors.items()},
            steps=torch.tensor([self.steps[c] for c in clients.tolist()]),
            shares=shares / shares.sum(),
        )
        return _Answers(cohort.tolist(), torch.nonzero(finite).flatten().tolist(), results, uploads)

    def _diverged(self, number: int, reason: str) -> RunStopped:
        return RunStopped(
            f"Round {number} of {self.method.name}: {reason}, the run has diverged. Try a smaller local rate "
            f"(it is {self.plan.setting.local_lr:g}) or a weaker correction."
        )

    def _record(self, state: State, answers: _Answers, began: float) -> RoundRecord:
        weights, output = state.server.weights, self.method.output(state.server)
        scores = self._evaluate(self.test, weights, state.buffers)
        held_out = self._evaluate(self.validation, weights, state.buffers)
        losses = [evaluation.loss or 0.0 for evaluation in (scores, held_out)]
        if not torch.isfinite(weights).all() or not all(map(math.isfinite, losses)):
            raise self._diverged(state.round, "the global model's loss is not finite")
        timed = [seconds for seconds in answers.results.seconds if seconds is not None]
        return RoundRecord(
            round=state.round,
            accuracy=scores.accuracy,
            loss=scores.loss,
            output_accuracy=None if output is weights else self._evaluate(self.test, output, state.buffers).accuracy,
            validation_accuracy=held_out.accuracy,
            validation_loss=held_out.loss,
            slowest_client_seconds=max(timed, default=None),
            wall_seconds=perf_counter() - began,
            class_accuracy=scores.class_accuracy,
            cohort=len(answers.cohort),
            dropped=dict.fromkeys(answers.dropped(), "the upload is not finite"),
        )

    def _evaluate(self, samples: Samples | None, weights: Tensor, buffers: Tensor) -> Evaluation:
        if samples is None:
            return Evaluation(None, None)
        return evaluate(self.model, samples, self.plan.loss, weights, buffers)


def cohort_size(participation: float, clients: int) -> int:
    return max(1, round(participation * clients))


@dataclass(frozen=True)
class _Answers:
    """What a cohort sent: ``valid`` are the rows of it whose uploads can be used."""

    cohort: list[int]
    valid: list[int]
    results: Results
    uploads: Uploads

    def memories(self) -> dict[int, Memory]:
        return {self.cohort[row]: self.results.memories[row] for row in self.valid if self.results.memories[row]}

    def dropped(self) -> set[int]:
        return set(self.cohort) - set(self.uploads.clients.tolist())


def _client_records(state: State, answers: _Answers) -> list[ClientRecord]:
    geometry, weights = answers.uploads.geometry, answers.uploads.weights
    measured = (geometry.alpha, geometry.cosines, geometry.norms, weights)
    of_row = dict(zip(answers.valid, zip(*(values.tolist() for values in measured), strict=True), strict=True))
    records = []
    for row, client in enumerate(answers.cohort):
        alpha, cosine, norm, weight = of_row.get(row, (None, None, None, 0.0))
        records.append(
            ClientRecord(
                round=state.round,
                client=client,
                alpha=alpha,
                cosine=cosine,
                norm=norm,
                weight=weight,
                seconds=answers.results.seconds[row],
                strikes=int(state.trust["strikes"][client]),
                expelled=bool(state.trust["expelled"][client]),
            )
        )
    return records


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """One thread, so that sums do not depend on the machine, and the caller's generator left alone."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
