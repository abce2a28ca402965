"""Freeloader detection by the paper's rule (Eq. 10 and Algorithm 2): α_i at or above κ, λ times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from fedtaco.methods import Memory, Setting, Uploads, check_parameters, parameter


class Detector(Protocol):
    """Judges a round's uploads after they were aggregated. What it remembers is plain data:
    per client ``strikes``, ``seen`` (rounds taken part in) and ``expelled``."""

    def judge(self, memory: Memory, uploads: Uploads, *, partial: bool) -> Memory: ...


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

    def judge(self, memory: Memory, uploads: Uploads, *, partial: bool) -> Memory:
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[uploads.clients] += 1
        if len(uploads.clients) > 1:
            strikes[uploads.clients] += uploads.geometry.alpha >= self.kappa
        limit, rounds = self.limit(uploads.setting), uploads.setting.rounds
        out = (strikes >= 3) & (strikes * rounds >= limit * seen) if partial else strikes >= limit
        return {"strikes": strikes, "seen": seen, "expelled": memory["expelled"] | out}


DETECTORS: dict[str, type[PaperDetector] | None] = {"off": None, "paper": PaperDetector}
