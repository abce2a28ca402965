"""What a detector is, and the paper's own (Eq. 10 and Algorithm 2): α_i at or above κ, λ times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedtaco.methods import Broadcast, Memory, Setting, Uploads, check_parameters, parameter
from fedtaco.records import Decision


@dataclass(frozen=True)
class Case:
    """What the server has when a round's uploads have come in."""

    sent: Broadcast
    asked: Tensor
    """Whom it was sent to, also those whose uploads cannot be used."""
    uploads: Uploads
    round: int
    partial: bool
    """Whether rounds are made with a part of the clients."""


@dataclass(frozen=True)
class Verdict:
    """What a detector remembers from now on, and what it decided."""

    memory: Memory
    left_out: Tensor
    """Which of the uploads are not to be used."""
    decisions: Sequence[Decision]
    scores: Sequence[Mapping[str, float]]
    """What each upload was judged by."""


class Detector(Protocol):
    """Judges a round's uploads before they are aggregated. What it remembers is plain data, among it
    per client ``strikes``, ``seen`` (rounds taken part in) and ``expelled``."""

    def begin(self, weights: Tensor, setting: Setting) -> Memory: ...

    def judge(self, memory: Memory, case: Case) -> Verdict: ...


def clean_record(clients: int) -> Memory:
    """No client has been seen, struck or expelled."""
    return {
        "strikes": torch.zeros(clients, dtype=torch.int64),
        "seen": torch.zeros(clients, dtype=torch.int64),
        "expelled": torch.zeros(clients, dtype=torch.bool),
    }


@dataclass(frozen=True)
class PaperDetector:
    """A strike for each round with α_i ≥ κ; out at λ strikes, from the next round on.

    A freeloader keeps its weight until then, and one upload alone is compared with nothing and gets
    no strike. Under partial participation a client is out at max(3, λ/T of the rounds it took part
    in), since it could not collect λ strikes in time.
    """

    namespace: ClassVar[str] = "taco"

    kappa: float = parameter(
        0.6, "κ (detector paper), the α from which an upload is suspicious", low=0, open_low=True, high=1
    )
    max_strikes: int | None = parameter(
        None,
        "λ (detector paper), strikes until a client is expelled; T/5 rounded up unless given",
        low=1,
        whole=True,
    )

    def __post_init__(self) -> None:
        check_parameters(self, self.namespace)

    def limit(self, setting: Setting) -> int:
        return math.ceil(setting.rounds / 5) if self.max_strikes is None else self.max_strikes

    def begin(self, weights: Tensor, setting: Setting) -> Memory:
        return clean_record(setting.clients)

    def judge(self, memory: Memory, case: Case) -> Verdict:
        uploads = case.uploads
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[uploads.clients] += 1
        if len(uploads.clients) > 1:
            strikes[uploads.clients] += uploads.geometry.alpha >= self.kappa
        limit, rounds = self.limit(uploads.setting), uploads.setting.rounds
        out = (strikes >= 3) & (strikes * rounds >= limit * seen) if case.partial else strikes >= limit
        expelled = memory["expelled"] | out
        decisions = [
            Decision(
                client=client,
                action="expelled",
                test="alpha",
                score=float(uploads.geometry.alpha[row]),
                threshold=self.kappa,
                reason=f"strikes for α at or above {self.kappa:g}: {int(strikes[client])}",
            )
            for row, client in enumerate(uploads.clients.tolist())
            if out[client] and not memory["expelled"][client]
        ]
        nobody = torch.zeros(len(uploads.clients), dtype=torch.bool)
        scores = [{"alpha": alpha} for alpha in uploads.geometry.alpha.tolist()]
        return Verdict({"strikes": strikes, "seen": seen, "expelled": expelled}, nobody, decisions, scores)
