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
from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.evaluation import Evaluation, evaluate
from fedtaco.local import Assignment, Job, Worker
from fedtaco.methods import Broadcast, Departure, Memory, Method, Server, Uploads, weighted_sum
from fedtaco.randomness import generator
from fedtaco.records import ClientRecord, Decision, RoundRecord
from fedtaco.trust import Case, Detector, clean_record, finite_rows

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
        if detector is not None and not method.inspectable:
            raise InvalidInput(f"No detector can judge the uploads of {method.name}; use --detector off.")
        self.weighting, self.detector = weighting, detector
        self.cohort_size = cohort_size(participation, len(self.clients))
        self.start = self.model.vector.to(HOME, copy=True), self.model.buffers.to(HOME, copy=True)
        self.engine = engine(worker)

    def begin(self) -> State:
        """The state before the first round."""
        weights, buffers = self.start
        server = Server(weights, self.method.server_memory(weights, self.plan.setting))
        trust = (
            clean_record(len(self.clients))
            if self.detector is None
            else self.detector.begin(self.method, weights, self.plan.setting)
        )
        return State(0, server, buffers, {}, trust)

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
            answers = self._ask(question, cohort, state)
            state = replace(state, server=method.absorb(state.server, answers.uploads))
        order = Assignment("train", number, method.broadcast(state.server, cohort), state.buffers)
        answers = self._ask(order, cohort, state)
        memories = {**state.memories, **answers.memories()}
        trust, decisions, scores = state.trust, list[Decision](), dict[int, Mapping[str, float]]()
        if self.detector is not None:
            verdict = self.detector.judge(trust, self._case(order, answers))
            trust, decisions = verdict.memory, list(verdict.decisions)
            scores = dict(zip(answers.uploads.clients.tolist(), verdict.scores, strict=True))
            answers = answers.leaving_out(verdict.left_out, {one.client: one.reason for one in decisions})
        uploads = answers.uploads
        uploads.weights = method.weigh(state.server, uploads)
        after = State(
            round=number,
            server=method.aggregate(state.server, uploads),
            buffers=weighted_sum(uploads.weights, answers.results.buffers[answers.valid]),
            memories=memories,
            trust=trust,
        )
        after = self._without_expelled(after, state.trust["expelled"])
        record = self._record(after, answers, decisions, began)
        return RoundOutcome(after, record, _client_records(after, answers, scores))

    def _case(self, order: Assignment, answers: _Answers) -> Case:
        sent = order.broadcast
        scalars = {name: values[answers.valid] for name, values in sent.scalars.items()}
        partial = self.cohort_size < len(self.clients)
        return Case(self.method, replace(sent, scalars=scalars), answers.uploads, order.round, partial)

    def _without_expelled(self, state: State, before: Tensor) -> State:
        newly = torch.nonzero(state.trust["expelled"] & ~before).flatten()
        if len(newly) == 0:
            return state
        fresh = self.method.client_memory(state.server.weights, self.plan.setting)
        memories = {client: state.memories.get(client, fresh) for client in newly.tolist()}
        departure = Departure(newly, int((~before).sum()), memories)
        return replace(state, server=self.method.without(state.server, departure))

    def _cohort(self, state: State, number: int) -> Tensor:
        active = torch.nonzero(~state.trust["expelled"]).flatten()
        if len(active) == 0:
            raise RunStopped(
                f"Round {number} of {self.method.name}: the detector has expelled every client. "
                "Raise taco.kappa or taco.max_strikes, or use --detector guard or off."
            )
        if self.cohort_size >= len(active):
            return active
        order = generator(self.plan.seed, "cohort", number).permutation(len(active))
        return active[torch.from_numpy(order[: self.cohort_size]).sort().values]

    def _ask(self, assignment: Assignment, cohort: Tensor, state: State) -> _Answers:
        """Have the cohort work, and keep the uploads that are finite."""
        fresh = self.method.client_memory(assignment.broadcast.start, self.plan.setting)
        jobs = [
            Job(row, client, self.steps[client], state.memories.get(client, fresh))
            for row, client in enumerate(cohort.tolist())
        ]
        results = self.engine.run(self.method, assignment, jobs)
        finite = finite_rows({**results.vectors, "buffers": results.buffers})
        if not finite.any():
            raise self._diverged(assignment.round, "no client sent a finite upload")
        counts = [len(self.clients[c]) if self.weighting == "samples" else 1 for c in cohort.tolist()]
        members = int((~state.trust["expelled"]).sum())
        shares = torch.tensor(counts, dtype=torch.float64)
        uploads = Uploads(
            setting=replace(self.plan.setting, clients=members),
            clients=cohort,
            vectors=results.vectors,
            steps=torch.tensor([self.steps[c] for c in cohort.tolist()]),
            shares=shares / shares.sum(),
        )
        answers = _Answers(cohort.tolist(), list(range(len(cohort))), results, uploads, {})
        return answers.leaving_out(~finite, dict.fromkeys(cohort.tolist(), "the upload is not finite"))

    def _diverged(self, number: int, reason: str) -> RunStopped:
        return RunStopped(
            f"Round {number} of {self.method.name}: {reason}, the run has diverged. Try a smaller local rate "
            f"(it is {self.plan.setting.local_lr:g}) or a weaker correction."
        )

    def _record(self, state: State, answers: _Answers, decisions: list[Decision], began: float) -> RoundRecord:
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
            dropped=answers.dropped,
            decisions=decisions,
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
    dropped: dict[int, str]
    """Whose uploads are not used, and why."""

    def memories(self) -> dict[int, Memory]:
        return {self.cohort[row]: self.results.memories[row] for row in self.valid if self.results.memories[row]}

    def leaving_out(self, rows: Tensor, reasons: Mapping[int, str]) -> _Answers:
        """Without those of the uploads, for the reasons that are given by client."""
        if not rows.any():
            return self
        kept = torch.nonzero(~rows).flatten().tolist()
        gone = self.uploads.clients[rows].tolist()
        return replace(
            self,
            valid=[self.valid[row] for row in kept],
            uploads=self.uploads.only(kept),
            dropped={**self.dropped, **{client: reasons[client] for client in gone}},
        )


def _client_records(state: State, answers: _Answers, scores: Mapping[int, Mapping[str, float]]) -> list[ClientRecord]:
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
                scores=scores.get(client, {}),
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
