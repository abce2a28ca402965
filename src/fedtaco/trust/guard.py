"""The guard: asks of each upload whether it holds anything that its client did not get from others.

A freeloader can send what it was sent, or noise. So what is not new is taken off each upload, the
method's own correction with it, and tests follow:

- **zero**: is there anything at all;
- **copy**: how much of it is new, that is outside the span of the moves and vectors the client was sent;
- **replica**: did another client send the very same;
- **content**: how much of what is new is explained by the uploads of others in this round, or by the
  client's own last one. Training leaves traces in common; fresh noise has none.

An upload that fails one is left out at once, and its client expelled after a few. All is computed on
sketches of what the server has anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.methods import Memory, Method, Setting, check_parameters, parameter
from fedtaco.records import Decision
from fedtaco.trust.detector import Case, Verdict, clean_record
from fedtaco.trust.evidence import ZERO, Evidence, nothing_sent

FEWEST, MOST = 4, 128
"""How many uploads content is judged among: with fewer nobody may agree, with more noise explains noise."""
CLEAR = 0.1
"""Content is not judged in models so small that noise could be explained to a larger part than this."""
RIDGE = 1e-5


@dataclass(frozen=True)
class Guard:
    """How the thresholds were found, and what evades them, stands in docs/freeloaders.md."""

    namespace: ClassVar[str] = "guard"

    copy: float = parameter(1e-8, "part of an upload that must be new (detector guard)", low=0, high=1)
    replica: float = parameter(1e-8, "1 - cosine below which two uploads are the same (detector guard)", low=0, high=1)
    content: float = parameter(
        10.0, "deviations by which uploads must be better explained than noise (detector guard)", low=0
    )
    max_strikes: int = parameter(3, "suspicious uploads until a client is expelled (detector guard)", low=1, whole=True)

    def __post_init__(self) -> None:
        check_parameters(self, self.namespace)

    def begin(self, method: Method, weights: Tensor, setting: Setting) -> Memory:
        return {**clean_record(setting.clients), **nothing_sent(setting.clients, len(weights))}

    def judge(self, memory: Memory, case: Case) -> Verdict:
        evidence = Evidence.of(memory, case)
        findings, scores = self._examine(evidence)
        clients = case.uploads.clients
        suspect = torch.zeros(len(clients), dtype=torch.bool)
        suspect[list(findings)] = True
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[clients] += 1
        strikes[clients] += suspect
        expelled = self._expelled(memory["expelled"], strikes)
        decisions = [
            finding.decided(client, bool(expelled[client]), all_suspect=bool(suspect.all()))
            for row, client in enumerate(clients.tolist())
            if (finding := findings.get(row))
        ]
        record = {"strikes": strikes, "seen": seen, "expelled": expelled}
        return Verdict({**evidence.remembered(~suspect), **record}, suspect & ~suspect.all(), decisions, scores)

    def _examine(self, evidence: Evidence) -> tuple[dict[int, Finding], list[dict[str, float]]]:
        """The rows that fail a test, with the first one that they fail, and the scores of all rows."""
        clients, live = evidence.case.uploads.clients.tolist(), []
        findings: dict[int, Finding] = {}
        scores = [{"new": share} for share in evidence.new_share.tolist()]
        if not evidence.lengths.any():
            return findings, scores
        is_zero = evidence.is_zero
        for row, score in enumerate(scores):
            if not math.isfinite(score["new"]):
                findings[row] = Finding("finite", score["new"], 0.0, "its upload is too long to be judged")
            elif is_zero[row]:
                findings[row] = Finding("zero", 0.0, ZERO, "its upload is zero")
            elif score["new"] < self.copy:
                findings[row] = Finding("copy", score["new"], self.copy, "its upload is made of what it was sent")
            else:
                live.append(row)
        for row, (apart, other) in zip(live, _nearest(evidence.new[live]), strict=True):
            if apart < self.replica:
                reason = f"its upload is client {clients[live[other]]}'s too"
                findings[row] = Finding("replica", apart, self.replica, reason)
        for rows in _tables([row for row in live if row not in findings]):
            explained = torch.maximum(_explained_by_others(evidence.new[rows]), evidence.agreement_with_last[rows])
            by_chance = self._by_chance(len(rows), evidence.new.shape[1])
            for row, share in zip(rows, explained.tolist(), strict=True):
                scores[row]["explained"] = share
                if share < by_chance < CLEAR:
                    reason = "its upload has nothing in common with any other"
                    findings[row] = Finding("content", share, by_chance, reason)
        return findings, scores

    def _by_chance(self, uploads: int, size: int) -> float:
        """How much of noise the other uploads and the last one may explain: its squared cosine with each of them is
        χ² with one degree of freedom over ``size``."""
        return (uploads + self.content * math.sqrt(2 * uploads)) / size

    def _expelled(self, before: Tensor, strikes: Tensor) -> Tensor:
        """Those with enough strikes, most first, as long as more than half of all clients stay, and two."""
        due = torch.nonzero((strikes >= self.max_strikes) & ~before).flatten().tolist()
        room = min((len(before) - 1) // 2, len(before) - 2) - int(before.sum())
        chosen = sorted(due, key=lambda client: (-int(strikes[client]), client))[: max(0, room)]
        return before.index_fill(0, torch.tensor(chosen, dtype=torch.int64), True)


@dataclass(frozen=True)
class Finding:
    """A test that an upload failed, and why."""

    test: str
    score: float
    threshold: float
    reason: str

    def decided(self, client: int, expelled: bool, *, all_suspect: bool) -> Decision:
        action = "expelled" if expelled else "spared" if all_suspect else "left out"
        return Decision(client, action, self.test, self.score, self.threshold, self.reason)


def _nearest(rows: Tensor) -> Iterator[tuple[float, int]]:
    """For each unit row 1 - cosine with the one nearest to it, and which one that is; a row alone is near to none."""
    for start in range(0, len(rows), MOST):
        cosines = rows[start : start + MOST] @ rows.T
        cosines.diagonal(offset=start).fill_(-torch.inf)
        for row, other in enumerate(cosines.argmax(1).tolist(), start):
            apart = (rows[row] - rows[other]).double().square().sum() / 2
            yield (1.0 if other == row else float(apart)), other


def _tables(rows: Sequence[int]) -> Iterator[list[int]]:
    """The rows in parts of nearly equal size, none too large; nothing if they are too few."""
    parts = -(-len(rows) // MOST)
    if len(rows) >= FEWEST:
        yield from (list(rows[part::parts]) for part in range(parts))


def _explained_by_others(rows: Tensor) -> Tensor:
    """The part of each unit row that a regression on all others explains, from the inverse of their Gram matrix."""
    gram = (rows @ rows.T).double() + RIDGE * torch.eye(len(rows), dtype=torch.float64)
    inverse: Tensor = torch.linalg.inv(gram)
    return 1 - 1 / (gram.diagonal() * inverse.diagonal())
