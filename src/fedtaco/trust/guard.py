"""The guard: checks whether an upload contains anything that its client did not receive.

A freeloader can send back what it received, or noise. So the guard removes from each upload what its
client has received, including the method's own correction, and tests what is new:

- **zero**: Is the upload zero?
- **copy**: Which fraction of the upload is new, that is, outside the span of what the client received?
- **content**: Which fraction of what is new can be explained by other uploads of this round or by earlier
  uploads, including those of the same client? Trained uploads have something in common; fresh noise does not.
  Late in a run, or with few clients, honest uploads may not have it either. So an upload only fails if its size
  is spread over the coordinates as that of noise, too, and if most clients that have trained are far above the
  threshold.
- **replica**: Did another client send the same, and has this one never been seen to train? Honest clients with the
  same samples may send the same, but they have trained before there was anything to copy.

An upload that fails a test is dropped, and its client is expelled after several failures. A client that has trained
and states a loss near zero has nothing to learn: its zeros, its copies, and noise that is very short compared with
other uploads are dropped, but they do not expel it. All tests use sketches of vectors that the server has in any case.

If uploads are compressed, the codec's noise counts as new. It may exceed what is new in honest uploads, so that no
threshold tells them from copies; the copy test is then omitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

import torch
from torch import Tensor
from torch.nn import functional

from fedtaco.codecs import Codec
from fedtaco.methods import Constants, NamedTensors
from fedtaco.parameters import parameter
from fedtaco.records import Decision
from fedtaco.trust.detector import Detector, DetectorInput, Verdict
from fedtaco.trust.evidence import NUMBERS_PER_MOVE, ZERO, Evidence, initial_evidence
from fedtaco.trust.profile import Profile
from fedtaco.trust.sketch import sketch

MIN_OTHERS = 6
"""An upload is dropped by the content test only if it was compared with at least this many others."""
POWER = 5.0
"""Among clients that have trained, the median of what others explain must exceed the threshold of the content test by
this factor, or nobody fails the test: an honest upload might then be below the threshold as well."""
MAX_OTHERS = (128, 64, 32, 16)
"""Maximum number of current uploads, and of earlier uploads, that an upload is compared with: the first of these values
that the sketch size allows (see MAX_CHANCE)."""
MAX_CHANCE = 0.1
"""The content test is skipped if other uploads could explain more than this fraction of noise, as in tiny models."""
NEAR = 1e-3
"""If 1 - cosine of two uploads is below this value, it is computed again, exactly, from their difference."""
BLOCK, SHORT_SKETCH = 128, 1021
"""Uploads per block in the search for replicas, and the size of the sketches used if there are several blocks."""
RIDGE = 1e-5
"""Regularisation of the regression in the content test."""


@dataclass(frozen=True)
class Guard(Detector):
    """Drops uploads without anything new and expels clients that keep sending them.

    docs/freeloaders.md explains how the thresholds were chosen, and which uploads evade the guard.
    """

    name = "guard"
    summary = "drops uploads without anything new, and expels clients that keep sending them"

    copy: float = parameter(1e-8, "fraction of an upload's squared norm that must be new", low=0, high=1)
    replica: float = parameter(1e-6, "1 - cosine below which two uploads are the same", low=0, high=1)
    content: float = parameter(10.0, "standard deviations by which uploads must be better explained than noise", low=0)
    max_strikes: int = parameter(3, "suspicious uploads until a client is expelled", low=1, whole=True)

    def initial_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        record = super().initial_memory(weights, constants)
        return {**record, **initial_evidence(constants.clients, len(weights))}

    def note(self, codec: Codec) -> str | None:
        if codec.is_lossless:
            return None
        return f"The guard does not look for copies, because the noise of {codec} makes copies look new."

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        evidence = Evidence.of(memory, given)
        findings = self._examine(evidence, memory["strikes"])
        clients = given.uploads.clients
        suspicious, overflowing, fitted = (torch.zeros(len(clients), dtype=torch.bool) for _ in range(3))
        suspicious[list(findings.failed)] = True
        overflowing[[row for row, failure in findings.failed.items() if failure.test == "finite"]] = True
        fitted[[row for row, failure in findings.failed.items() if failure.is_fitted]] = True
        if suspicious.all():  # then the tests do not tell clients apart
            suspicious = overflowing
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[clients] += 1
        strikes[clients] += suspicious & ~fitted
        expelled = self._expelled(given.expelled, strikes)
        decisions = [
            failure.decision(client, dropped=bool(suspicious[row]), expelled=client in expelled)
            for row, client in enumerate(clients.tolist())
            if (failure := findings.failed.get(row))
        ]
        with_content = [row for row in findings.with_content if row not in findings.failed]
        new_memory = {**evidence.updated_memory(with_content), "strikes": strikes, "seen": seen}
        return Verdict(new_memory, suspicious, decisions, findings.scores, expelled)

    def _examine(self, evidence: Evidence, strikes: Tensor) -> Findings:
        """Run all tests on the uploads of a round."""
        findings = Findings([{"new": share} for share in evidence.new_share.tolist()])
        if evidence.norms.any():
            self._examine_each(evidence, strikes, findings)
        self._compare(evidence, findings)
        return findings

    def _examine_each(self, evidence: Evidence, strikes: Tensor, findings: Findings) -> None:
        """Test each upload on its own."""
        can_find_copies = evidence.size >= NUMBERS_PER_MOVE and evidence.given.codec.is_lossless
        earlier_strikes = strikes[evidence.given.uploads.clients].tolist()
        is_zero, is_fitted = evidence.is_zero.tolist(), evidence.is_fitted.tolist()
        for row, (score, count) in enumerate(zip(findings.scores, earlier_strikes, strict=True)):
            share = score["new"]
            if not math.isfinite(share):
                findings.failed[row] = Failure("finite", 0.0, 0.0, "the upload is too large to be judged")
            elif is_zero[row]:
                findings.failed[row] = Failure("zero", 0.0, ZERO, "the upload is zero", is_fitted[row])
            elif can_find_copies and share < self.copy:
                reason = "the upload contains only what the client received"
                findings.failed[row] = Failure("copy", share, self.copy, reason, is_fitted[row])
            elif count >= self.max_strikes:
                reason = "the client has enough strikes to be expelled, but more than half of all clients must stay"
                findings.failed[row] = Failure("strikes", float(count), self.max_strikes, reason)

    def _compare(self, evidence: Evidence, findings: Findings) -> None:
        """Compare uploads with each other: find those with content, and among the others noise.

        Uploads that are the same count as one, so that they do not explain each other.
        """
        groups, compared = self._replicas(evidence, findings), dict[int, float]()
        most = next((n for n in MAX_OTHERS if self._by_chance(2 * n - 1, evidence.size) <= MAX_CHANCE), MAX_OTHERS[-1])
        for firsts in _even_parts(list(groups), most):
            earlier = evidence.earlier(firsts, most)
            others = len(firsts) - 1 + len(earlier)
            by_chance = self._by_chance(others, evidence.size)
            if by_chance > MAX_CHANCE:  # too few parameters to tell content from noise
                findings.with_content.extend(row for first in firsts for row in groups[first])
                continue
            if others == 0:
                continue
            explained = _explained_by_others(torch.cat([evidence.new[firsts], earlier])).tolist()
            for first, share in zip(firsts, explained, strict=False):
                if share >= by_chance:
                    findings.with_content.extend(groups[first])
                for row in groups[first]:
                    findings.scores[row]["explained"] = share
                if others >= MIN_OTHERS:
                    compared |= dict.fromkeys(groups[first], by_chance)
        self._find_noise(evidence, findings, compared)

    def _find_noise(self, evidence: Evidence, findings: Findings, compared: Mapping[int, float]) -> None:
        """Find noise among the uploads that others do not explain, and replicas of clients that have never trained.

        ``compared`` are the rows that were compared with enough others, with the threshold of each. Unexplained uploads
        are noise if their profile is that of noise. The noise of a codec may have the profile of training; the profile
        then only speaks for clients that have trained.
        """
        scores, lossless = findings.scores, evidence.given.codec.is_lossless
        trained = evidence.trained_after(findings.with_content)[evidence.given.uploads.clients].tolist()
        unexplained = {row for row, by_chance in compared.items() if scores[row]["explained"] < by_chance}
        replicas = {row for row in compared if not trained[row] and scores[row].get("nearest", 1.0) < self.replica}
        ratios = [scores[row]["explained"] / by_chance for row, by_chance in compared.items() if trained[row]]
        if not (unexplained | replicas) or not ratios or median_low(ratios) < POWER:
            return
        profile = Profile.of(evidence, findings.with_content)
        if not profile.can_tell:
            return
        is_fitted = (evidence.is_fitted & evidence.is_short).tolist()
        for row in sorted(unexplained):
            share, correlation = scores[row]["explained"], profile.correlation(row)
            scores[row]["profile"] = correlation
            if correlation < profile.by_chance or not (trained[row] or lossless):
                reason = "the upload has nothing in common with any other"
                findings.failed[row] = Failure("content", share, compared[row], reason, is_fitted[row])
        for row in sorted(replicas - findings.failed.keys()):
            reason = "another client sent the same, and this one has never been seen to train"
            findings.failed[row] = Failure("replica", scores[row]["nearest"], self.replica, reason)

    def _replicas(self, evidence: Evidence, findings: Findings) -> dict[int, list[int]]:
        """Return the rows that have passed so far in groups of uploads that are the same, by the first of each group.

        Each search assigns uploads to the nearest one; it is repeated among the first ones until no two are the same.
        """
        first = {row: row for row in findings.passed}
        rows, searched = list(first), 0
        while len(rows) != searched:
            searched = len(rows)
            for row, (distance, other) in zip(rows, _nearest(evidence.new[rows]), strict=True):
                if searched > 1:
                    findings.scores[row].setdefault("nearest", distance)
                if distance < self.replica and rows[other] < row:
                    first[row] = first[rows[other]]
            rows = [row for row in rows if first[row] == row]
        groups = {row: list[int]() for row in rows}
        for row in first:
            first[row] = first[first[row]]
            groups[first[row]].append(row)
        return groups

    def _by_chance(self, others: int, size: int) -> float:
        """Return an upper bound on the fraction of noise that this many other vectors explain by chance.

        The bound is the mean plus ``content`` standard deviations: the squared cosine of noise with each vector is
        distributed as χ² with one degree of freedom, divided by ``size``.
        """
        return (others + self.content * math.sqrt(2 * others)) / size

    def _expelled(self, before: Tensor, strikes: Tensor) -> list[int]:
        """Return the clients to expel; ``before`` is a mask of those expelled earlier.

        Clients with enough strikes are expelled, most strikes first, as long as more than half of all clients stay.
        """
        due = torch.nonzero((strikes >= self.max_strikes) & ~before).flatten().tolist()
        room = max(0, (len(before) - 1) // 2 - int(before.sum()))
        return sorted(due, key=lambda client: (-int(strikes[client]), client))[:room]


@dataclass(frozen=True)
class Failure:
    """A test that an upload failed, and why."""

    test: str
    score: float
    threshold: float
    reason: str
    is_fitted: bool = False
    """Whether the client gets no strike, because an honest client that fits its samples sends the same."""

    def decision(self, client: int, *, dropped: bool, expelled: bool) -> Decision:
        """Return the decision to record."""
        action = "expelled" if expelled else "dropped" if dropped else "spared"
        fitted = "; no strike, because the client has trained and states a loss near zero" if self.is_fitted else ""
        return Decision(client, action, self.test, self.score, self.threshold, self.reason + fitted)


@dataclass(frozen=True)
class Findings:
    """What the tests found about the uploads of a round, by row."""

    scores: list[dict[str, float]]
    failed: dict[int, Failure] = field(default_factory=dict)
    """For each suspicious upload, the first test that it failed."""
    with_content: list[int] = field(default_factory=list)
    """Uploads in which content was found."""

    @property
    def passed(self) -> list[int]:
        """The uploads that have failed no test so far."""
        return [row for row in range(len(self.scores)) if row not in self.failed]


def _nearest(rows: Tensor) -> Iterator[tuple[float, int]]:
    """Yield for each unit row the distance 1 - cosine to the nearest other row, and the position of that row.

    If there are many rows, shorter sketches of them are used to find the nearest one.
    """
    near = functional.normalize(sketch(rows, SHORT_SKETCH)) if len(rows) > BLOCK else rows
    for start in range(0, len(rows), BLOCK):
        cosines = near[start : start + BLOCK] @ near.T
        cosines.diagonal(offset=start).fill_(-torch.inf)
        largest, others = cosines.max(1)
        for row, (cosine, other) in enumerate(zip(largest.tolist(), others.tolist(), strict=True), start):
            distance = 1 - cosine
            if distance < NEAR:
                distance = float((rows[row] - rows[other]).double().square().sum() / 2)
            yield distance, other


def _even_parts(rows: Sequence[int], most: int) -> Iterator[list[int]]:
    """Split rows into parts of nearly equal size, none larger than ``most``."""
    parts = -(-len(rows) // most)
    yield from (list(rows[part::parts]) for part in range(parts))


def _explained_by_others(rows: Tensor) -> Tensor:
    """Return the fraction of each unit row that a regression on all others explains, from their inverse Gram matrix."""
    gram = (rows @ rows.T).double() + RIDGE * torch.eye(len(rows), dtype=torch.float64)
    inverse: Tensor = torch.linalg.inv(gram)
    return 1 - 1 / (gram.diagonal() * inverse.diagonal())
