"""The guard: asks of each upload whether it holds anything that its client did not get from others.

A freeloader can send what it was sent, or noise. So what is not new is taken off each upload, the
method's own correction with it, and tests follow:

- **zero**: is there anything at all;
- **copy**: how much of it is new, that is outside the span of the moves and vectors the client was sent;
- **replica**: did another client send the very same;
- **content**: how much of what is new is explained by the uploads of others in this round, or by
  earlier ones, its own among them. Training leaves traces in common; fresh noise has none.

An upload that fails one is left out at once, and its client expelled after a few. All is computed on
sketches of what the server has anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.methods import Memory, Setting, check_parameters, parameter
from fedtaco.records import Decision
from fedtaco.trust.detector import Case, Verdict, clean_record
from fedtaco.trust.evidence import ROOM, ZERO, Evidence, nothing_sent
from fedtaco.trust.sketch import sketch

FEWEST = 6
"""How many others an upload must be compared with to be left out, since among fewer nobody may agree."""
TABLES = (128, 64, 32)
"""With how many of a round, and how many earlier ones, an upload is compared at most, since with more noise explains
noise: the first of these with which a sketch has room enough."""
CLEAR = 0.1
"""Content is not judged in models so small that noise could be explained to a larger part than this."""
NEAR = 1e-3
"""How near, as 1 - cosine, two uploads must be for their difference to be worth computing."""
BLOCK, SHORT = 128, 1021
"""How many uploads are many, and numbers in a sketch by which the nearest of many are found."""
RIDGE = 1e-5


@dataclass(frozen=True)
class Guard:
    """How the thresholds were found, and what evades them, stands in docs/freeloaders.md."""

    namespace: ClassVar[str] = "guard"

    copy: float = parameter(1e-8, "part of an upload that must be new (detector guard)", low=0, high=1)
    replica: float = parameter(1e-6, "1 - cosine below which two uploads are the same (detector guard)", low=0, high=1)
    content: float = parameter(
        10.0, "deviations by which uploads must be better explained than noise (detector guard)", low=0
    )
    max_strikes: int = parameter(3, "suspicious uploads until a client is expelled (detector guard)", low=1, whole=True)

    def __post_init__(self) -> None:
        check_parameters(self, self.namespace)

    def begin(self, weights: Tensor, setting: Setting) -> Memory:
        return {**clean_record(setting.clients), **nothing_sent(setting.clients, len(weights))}

    def judge(self, memory: Memory, case: Case) -> Verdict:
        evidence = Evidence.of(memory, case)
        report = self._examine(evidence, memory["strikes"])
        clients = case.uploads.clients
        suspect, broken = (torch.zeros(len(clients), dtype=torch.bool) for _ in range(2))
        suspect[list(report.findings)] = True
        broken[[row for row, finding in report.findings.items() if finding.test == "finite"]] = True
        if suspect.all():
            suspect = broken
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[clients] += 1
        strikes[clients] += suspect
        expelled = self._expelled(memory["expelled"], strikes)
        decisions = [
            finding.decided(client, left_out=bool(suspect[row]), expelled=bool(expelled[client]))
            for row, client in enumerate(clients.tolist())
            if (finding := report.findings.get(row))
        ]
        told = torch.zeros_like(suspect)
        told[report.told] = True
        record = {"strikes": strikes, "seen": seen, "expelled": expelled}
        return Verdict({**evidence.remembered(told), **record}, suspect, decisions, report.scores)

    def _examine(self, evidence: Evidence, strikes: Tensor) -> Report:
        report = Report([{"new": share} for share in evidence.new_share.tolist()])
        if evidence.lengths.any():
            self._look_at_each(evidence, strikes, report)
        if evidence.size >= ROOM:
            self._look_for_replicas(evidence, report)
            self._look_for_content(evidence, report)
        return report

    def _look_at_each(self, evidence: Evidence, strikes: Tensor, report: Report) -> None:
        can_be_copied, before = evidence.size >= ROOM, strikes[evidence.case.uploads.clients].tolist()
        for row, (score, is_zero, count) in enumerate(
            zip(report.scores, evidence.is_zero.tolist(), before, strict=True)
        ):
            share = score["new"]
            if not math.isfinite(share):
                report.findings[row] = Finding("finite", share, 0.0, "the upload is too long to be judged")
            elif is_zero:
                report.findings[row] = Finding("zero", 0.0, ZERO, "the upload is zero")
            elif can_be_copied and share < self.copy:
                report.findings[row] = Finding(
                    "copy", share, self.copy, "the upload is made of what the client was sent"
                )
            elif count >= self.max_strikes:
                reason = "the client is due to be expelled and stays only since half of all must"
                report.findings[row] = Finding("strikes", float(count), self.max_strikes, reason)

    def _look_for_replicas(self, evidence: Evidence, report: Report) -> None:
        clients, live = evidence.case.uploads.clients.tolist(), report.live
        for row, (apart, other) in zip(live, _nearest(evidence.new[live]), strict=True):
            if apart < self.replica:
                reason = f"the upload is client {clients[live[other]]}'s too"
                report.findings[row] = Finding("replica", apart, self.replica, reason)

    def _look_for_content(self, evidence: Evidence, report: Report) -> None:
        most = next((one for one in TABLES if self._by_chance(2 * one - 1, evidence.size) <= CLEAR), TABLES[-1])
        for rows in _parts(report.live, most):
            earlier = evidence.earlier(rows, most)
            others = len(rows) - 1 + len(earlier)
            by_chance = self._by_chance(others, evidence.size)
            if others == 0 or by_chance > CLEAR:
                continue
            explained = _explained_by_others(torch.cat([evidence.new[rows], earlier]))
            for row, share in zip(rows, explained.tolist(), strict=False):
                report.scores[row]["explained"] = share
                if share >= by_chance:
                    report.told.append(row)
                elif others >= FEWEST:
                    reason = "the upload has nothing in common with any other"
                    report.findings[row] = Finding("content", share, by_chance, reason)

    def _by_chance(self, others: int, size: int) -> float:
        """How much of noise so many other vectors may explain: its squared cosine with each of them is χ² with one
        degree of freedom over ``size``."""
        return (others + self.content * math.sqrt(2 * others)) / size

    def _expelled(self, before: Tensor, strikes: Tensor) -> Tensor:
        """Those with enough strikes, most first, as long as more than half of all clients stay."""
        due = torch.nonzero((strikes >= self.max_strikes) & ~before).flatten().tolist()
        room = max(0, (len(before) - 1) // 2 - int(before.sum()))
        chosen = sorted(due, key=lambda client: (-int(strikes[client]), client))[:room]
        return before.index_fill(0, torch.tensor(chosen, dtype=torch.int64), True)


@dataclass(frozen=True)
class Finding:
    """A test that an upload failed, and why."""

    test: str
    score: float
    threshold: float
    reason: str

    def decided(self, client: int, *, left_out: bool, expelled: bool) -> Decision:
        action = "expelled" if expelled else "left out" if left_out else "spared"
        return Decision(client, action, self.test, self.score, self.threshold, self.reason)


@dataclass(frozen=True)
class Report:
    """What was found about the uploads of a round, by row."""

    scores: list[dict[str, float]]
    findings: dict[int, Finding] = field(default_factory=dict)
    """The first test that each suspicious upload failed."""
    told: list[int] = field(default_factory=list)
    """In which uploads content was found."""

    @property
    def live(self) -> list[int]:
        return [row for row in range(len(self.scores)) if row not in self.findings]


def _nearest(rows: Tensor) -> Iterator[tuple[float, int]]:
    """For each unit row 1 - cosine with the one nearest to it, and which one that is; a row alone is near to none.

    Among many rows shorter sketches are compared, and only the nearest as they are.
    """
    near = functional.normalize(sketch(rows, SHORT)) if len(rows) > BLOCK else rows
    for start in range(0, len(rows), BLOCK):
        cosines = near[start : start + BLOCK] @ near.T
        cosines.diagonal(offset=start).fill_(-torch.inf)
        largest, others = cosines.max(1)
        for row, (cosine, other) in enumerate(zip(largest.tolist(), others.tolist(), strict=True), start):
            apart = 1 - cosine
            if apart < NEAR:
                apart = float((rows[row] - rows[other]).double().square().sum() / 2)
            yield apart, other


def _parts(rows: Sequence[int], most: int) -> Iterator[list[int]]:
    """The rows in parts of nearly equal size, none too large."""
    parts = -(-len(rows) // most)
    yield from (list(rows[part::parts]) for part in range(parts))


def _explained_by_others(rows: Tensor) -> Tensor:
    """The part of each unit row that a regression on all others explains, from the inverse of their Gram matrix."""
    gram = (rows @ rows.T).double() + RIDGE * torch.eye(len(rows), dtype=torch.float64)
    inverse: Tensor = torch.linalg.inv(gram)
    return 1 - 1 / (gram.diagonal() * inverse.diagonal())
