"""The server's half of a round, wherever the clients are: on this machine or across a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.errors import RunStopped
from fedtaco.local import Assignment
from fedtaco.methods import Broadcast, Memory, Method, Server, Setting, Uploads, weighted_sum
from fedtaco.randomness import generator
from fedtaco.records import ClientRecord
from fedtaco.trust import Detector
from fedtaco.trust.detector import clean_record


@dataclass(frozen=True)
class State:
    """All that outlives a round: plain data, from which a run goes on as if it had never stopped."""

    round: int
    server: Server
    buffers: Tensor
    memories: Mapping[int, Memory]
    trust: Memory


@dataclass(frozen=True)
class Answers:
    """What a cohort sent: the uploads that can be used, and why others cannot."""

    cohort: list[int]
    uploads: Uploads
    buffers: Tensor
    """A row for each upload."""
    memories: Mapping[int, Memory]
    """What each client whose upload is used remembers, where the server keeps it."""
    seconds: Mapping[int, float | None]
    dropped: Mapping[int, str]
    """Clients whose upload cannot be used, with the reason."""


@dataclass(frozen=True)
class Coordinator:
    """Who takes part in a round, what they are sent, and what becomes of their answers."""

    method: Method
    setting: Setting
    seed: int
    cohort_size: int
    detector: Detector | None = None

    def begin(self, weights: Tensor, buffers: Tensor) -> State:
        """The state before the first round."""
        server = Server(weights, self.method.server_memory(weights, self.setting))
        return State(0, server, buffers, {}, clean_record(self.setting.clients))

    def cohort(self, state: State, available: Tensor | None = None) -> Tensor:
        """The clients of the next round, of those that are ``available``; all are unless told otherwise."""
        number = state.round + 1
        stays = ~state.trust["expelled"]
        if not stays.any():
            raise RunStopped(
                f"Round {number} of {self.method.name}: the detector has expelled every client. "
                "Raise taco.kappa or taco.max_strikes, or use --detector off."
            )
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

    def conclude(self, state: State, answers: Answers) -> State:
        """The state after the round, with whoever the detector expels."""
        uploads = answers.uploads
        uploads.weights = self.method.weigh(state.server, uploads)
        after = State(
            round=state.round + 1,
            server=self.method.aggregate(state.server, uploads),
            buffers=weighted_sum(uploads.weights, answers.buffers),
            memories={**state.memories, **answers.memories},
            trust=state.trust,
        )
        return after if self.detector is None else self._judge(self.detector, after, uploads)

    def diverged(self, number: int, reason: str) -> RunStopped:
        return RunStopped(
            f"Round {number} of {self.method.name}: {reason}, the run has diverged. Try a smaller local rate "
            f"(it is {self.setting.local_lr:g}) or a weaker correction."
        )

    def _judge(self, detector: Detector, state: State, uploads: Uploads) -> State:
        partial = self.cohort_size < self.setting.clients
        trust = detector.judge(state.trust, uploads, partial=partial)
        newly = torch.nonzero(trust["expelled"] & ~state.trust["expelled"]).flatten()
        server = self.method.without(state.server, newly) if len(newly) else state.server
        return replace(state, server=server, trust=trust)


def cohort_size(participation: float, clients: int) -> int:
    return max(1, round(participation * clients))


def shares_by(counts: list[float]) -> Tensor:
    """What each upload counts, in proportion to these numbers."""
    shares = torch.tensor(counts, dtype=torch.float64)
    return shares / shares.sum()


def client_records(state: State, answers: Answers) -> list[ClientRecord]:
    """One record for each client that was asked, in the order of the cohort."""
    of_client, records = _measured(answers.uploads), []
    for client in answers.cohort:
        alpha, cosine, norm, weight = of_client.get(client, (None, None, None, 0.0))
        records.append(
            ClientRecord(
                round=state.round,
                client=client,
                alpha=alpha,
                cosine=cosine,
                norm=norm,
                weight=weight,
                seconds=answers.seconds.get(client),
                strikes=int(state.trust["strikes"][client]),
                expelled=bool(state.trust["expelled"][client]),
            )
        )
    return records


def _measured(uploads: Uploads) -> dict[int, tuple[float, ...]]:
    """α, cosine, norm and weight of each client whose upload is used."""
    if not len(uploads.clients):
        return {}
    geometry = uploads.geometry
    measured = (geometry.alpha, geometry.cosines, geometry.norms, uploads.weights)
    rows = zip(*(values.tolist() for values in measured), strict=True)
    return dict(zip(uploads.clients.tolist(), rows, strict=True))
