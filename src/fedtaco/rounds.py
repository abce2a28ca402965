"""The server's half of a round, wherever the clients are: on this machine or across a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.local import Assignment
from fedtaco.methods import Broadcast, Departure, Memory, Method, Server, Setting, Uploads, weighted_sum
from fedtaco.randomness import generator
from fedtaco.records import ClientRecord, Decision
from fedtaco.trust import Case, Detector, clean_record


@dataclass(frozen=True)
class State:
    """All that outlives a round: plain data, from which a run goes on as if it had never stopped."""

    round: int
    server: Server
    buffers: Tensor
    memories: Mapping[int, Memory]
    trust: Memory

    @property
    def members(self) -> int:
        """How many clients are not expelled."""
        return int((~self.trust["expelled"]).sum())


@dataclass(frozen=True)
class Answers:
    """What a cohort sent: the uploads that are used, and why others are not."""

    cohort: list[int]
    uploads: Uploads
    buffers: Tensor
    """A row for each upload."""
    memories: Mapping[int, Memory]
    """What clients remember, where the server knows it."""
    seconds: Mapping[int, float | None]
    dropped: Mapping[int, str]
    """Whose uploads are not used, and why."""

    def leaving_out(self, rows: Tensor, reasons: Mapping[int, str]) -> Answers:
        """Without those of the uploads, for the reasons that are given by client."""
        if not rows.any():
            return self
        kept = torch.nonzero(~rows).flatten().tolist()
        gone = self.uploads.clients[rows].tolist()
        return replace(
            self,
            uploads=self.uploads.only(kept),
            buffers=self.buffers[kept],
            dropped={**self.dropped, **{client: reasons[client] for client in gone}},
        )


@dataclass(frozen=True)
class Conclusion:
    """A round from the server's side: the state after it, what was used, and what the detector decided."""

    state: State
    answers: Answers
    decisions: list[Decision]
    scores: Mapping[int, Mapping[str, float]]

    def client_records(self) -> list[ClientRecord]:
        """One record for each client that was asked, in the order of the cohort."""
        of_client, records, trust = _measured(self.answers.uploads), [], self.state.trust
        for client in self.answers.cohort:
            alpha, cosine, norm, weight = of_client.get(client, (None, None, None, 0.0))
            records.append(
                ClientRecord(
                    round=self.state.round,
                    client=client,
                    alpha=alpha,
                    cosine=cosine,
                    norm=norm,
                    weight=weight,
                    seconds=self.answers.seconds.get(client),
                    strikes=int(trust["strikes"][client]),
                    expelled=bool(trust["expelled"][client]),
                    scores=self.scores.get(client, {}),
                )
            )
        return records


@dataclass(frozen=True)
class Coordinator:
    """Who takes part in a round, what they are sent, and what becomes of their answers."""

    method: Method
    setting: Setting
    seed: int
    cohort_size: int
    detector: Detector | None = None

    def __post_init__(self) -> None:
        if self.detector is not None and not self.method.inspectable:
            raise InvalidInput(f"No detector can judge the uploads of {self.method.name}; use --detector off.")

    def begin(self, weights: Tensor, buffers: Tensor) -> State:
        """The state before the first round."""
        server = Server(weights, self.method.server_memory(weights, self.setting))
        trust = (
            clean_record(self.setting.clients) if self.detector is None else self.detector.begin(weights, self.setting)
        )
        return State(0, server, buffers, {}, trust)

    def cohort(self, state: State, available: Tensor | None = None) -> Tensor:
        """The clients of the next round, of those that are ``available``; all are unless told otherwise."""
        number = state.round + 1
        if state.members == 0:
            raise RunStopped(
                f"Round {number} of {self.method.name}: the detector has expelled every client. "
                "Raise taco.kappa or taco.max_strikes, or use --detector guard or off."
            )
        stays = ~state.trust["expelled"]
        active = torch.nonzero(stays if available is None else stays & available).flatten()
        if self.cohort_size >= len(active):
            return active
        order = generator(self.seed, "cohort", number).permutation(len(active))
        return active[torch.from_numpy(order[: self.cohort_size]).sort().values]

    def question(self, state: State) -> Assignment:
        """What the cohort of a method with two phases is asked first."""
        return Assignment("survey", state.round + 1, Broadcast(state.server.weights), state.buffers)

    def absorb(self, state: State, answers: Answers) -> State:
        return replace(state, server=self.method.absorb(state.server, answers.uploads))

    def order(self, state: State, cohort: Tensor) -> Assignment:
        """What the cohort is to train on."""
        return Assignment("train", state.round + 1, self.method.broadcast(state.server, cohort), state.buffers)

    def setting_of(self, state: State) -> Setting:
        """The constants that formulas name, with the clients that are not expelled."""
        return replace(self.setting, clients=state.members)

    def conclude(self, state: State, order: Assignment, answers: Answers) -> Conclusion:
        """Judge the uploads if there is a detector, aggregate those that are used, let expelled clients go."""
        trust, decisions, scores = state.trust, list[Decision](), dict[int, Mapping[str, float]]()
        known = answers.memories
        if self.detector is not None:
            verdict = self.detector.judge(trust, self._case(order, answers))
            trust, decisions = verdict.memory, list(verdict.decisions)
            scores = dict(zip(answers.uploads.clients.tolist(), verdict.scores, strict=True))
            answers = answers.leaving_out(verdict.left_out, {one.client: one.reason for one in decisions})
        uploads = answers.uploads
        uploads.weights = self.method.weigh(state.server, uploads)
        after = State(
            round=order.round,
            server=self.method.aggregate(state.server, uploads),
            buffers=weighted_sum(uploads.weights, answers.buffers),
            memories={**state.memories, **self._remembered(state, known, answers)},
            trust=trust,
        )
        return Conclusion(self._without_expelled(after, state), answers, decisions, scores)

    def _remembered(self, state: State, known: Mapping[int, Memory], answers: Answers) -> dict[int, Memory]:
        """What clients remember. Where an upload is left out the method forgets the round; what a client keeps beside
        the method's memory is its own affair."""
        fresh, used = self.method.client_memory(state.server.weights, self.setting), answers.uploads.clients.tolist()
        memories = dict(known)
        for client in set(known) - set(used):
            before = {**fresh, **state.memories.get(client, {})}
            memories[client] = {name: before[name] if name in fresh else new for name, new in known[client].items()}
        return memories

    def diverged(self, number: int, reason: str) -> RunStopped:
        return RunStopped(
            f"Round {number} of {self.method.name}: {reason}, the run has diverged. Try a smaller local rate "
            f"(it is {self.setting.local_lr:g}) or a weaker correction."
        )

    def _case(self, order: Assignment, answers: Answers) -> Case:
        partial = self.cohort_size < self.setting.clients
        return Case(order.broadcast, torch.tensor(answers.cohort), answers.uploads, order.round, partial)

    def _without_expelled(self, state: State, before: State) -> State:
        newly = torch.nonzero(state.trust["expelled"] & ~before.trust["expelled"]).flatten()
        if len(newly) == 0:
            return state
        fresh = self.method.client_memory(state.server.weights, self.setting)
        memories = {client: state.memories.get(client, fresh) for client in newly.tolist()}
        return replace(state, server=self.method.without(state.server, Departure(newly, before.members, memories)))


def cohort_size(participation: float, clients: int) -> int:
    return max(1, round(participation * clients))


def shares_by(counts: list[float]) -> Tensor:
    """What each upload counts, in proportion to these numbers."""
    shares = torch.tensor(counts, dtype=torch.float64)
    return shares / shares.sum()


def _measured(uploads: Uploads) -> dict[int, tuple[float, ...]]:
    """α, cosine, norm and weight of each client whose upload is used."""
    if not len(uploads.clients):
        return {}
    geometry = uploads.geometry
    measured = (geometry.alpha, geometry.cosines, geometry.norms, uploads.weights)
    rows = zip(*(values.tolist() for values in measured), strict=True)
    return dict(zip(uploads.clients.tolist(), rows, strict=True))
