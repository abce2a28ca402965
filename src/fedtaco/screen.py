"""The checks that every upload passes before a detector judges it: finite, valid buffers, and norms near the median.

Norms and losses are compared with those of earlier rounds, which the run's state keeps as its ``baseline``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions
from fedtaco.methods import NamedTensors
from fedtaco.records import Decision
from fedtaco.trust import Detector, Verdict

ROUNDS_REMEMBERED = 10
"""Number of earlier rounds whose median norms are remembered."""
MIN_UPLOADS = 3
"""Number of uploads from which their median is meaningful: of two, it is unknown which one is unusual."""
MAX_LOSS_RATIO = 10.0
"""A round is undone if losses rise by more than this factor."""
MAX_LOG = 700.0
"""Logarithm up to which ratios are reported."""
OUTLIER_DEVIATIONS = 3 * 1.4826
"""A norm is an outlier if its logarithm is more than this many median absolute deviations above the median."""


def find_invalid(vectors: NamedTensors, buffers: Tensor, min_buffers: Tensor) -> dict[int, str]:
    """Return the rows that cannot be used at all, with the reason.

    Parameters
    ----------
    vectors, buffers
        What the clients sent, one row per client. A norm that overflows counts as not finite.
    min_buffers
        The lowest valid value of each buffer; 0 for variances.

    >>> find_invalid({"update": torch.tensor([[1.0], [torch.nan]])}, torch.ones(2, 1), torch.zeros(1))
    {1: 'the upload is not finite'}
    """
    norms = [torch.linalg.vector_norm(rows.flatten(1), dim=1) for rows in (*vectors.values(), buffers)]
    finite = torch.stack([torch.isfinite(norm) for norm in norms]).all(0)
    negative = (buffers < min_buffers).any(1)
    reasons = dict.fromkeys(torch.nonzero(negative).flatten().tolist(), "a variance in the buffers is negative")
    return reasons | dict.fromkeys(torch.nonzero(~finite).flatten().tolist(), "the upload is not finite")


@dataclass(frozen=True)
class Screening:
    """What the norms of the uploads of a round showed."""

    baseline: NamedTensors
    """The baseline for the next round."""
    too_long: dict[int, Decision]
    """Uploads that were above the bound, by row."""
    is_surge: bool
    """Whether the typical norm of the whole round is far above that of earlier rounds."""

    @property
    def dropped(self) -> dict[int, str]:
        """The rows that must not be used, with the reason."""
        return {row: decision.reason for row, decision in self.too_long.items() if decision.action == "dropped"}


def screen_norms(
    results: CohortResults,
    instructions: Instructions,
    baseline: NamedTensors,
    detector: Detector,
    unbounded: Collection[str] = (),
) -> Screening:
    """Clip uploads that are too long, in place.

    The bound is ``max_norm`` times the median norm of the round, or of earlier rounds if that is larger; the median
    of the round counts at most ``max_norm`` times that of earlier rounds.

    Parameters
    ----------
    results
        What the cohort sent; changed in place.
    instructions
        What the cohort was asked.
    baseline
        Median norms of earlier rounds.
    detector
        Defines the bound.
    unbounded
        Names of vectors that may have any norm.
    """
    if detector.long_uploads == "use":
        return Screening(baseline, {}, is_surge=False)
    factor, updated, surge = detector.max_norm, dict(baseline), False
    too_long: dict[int, Decision] = {}
    for name, norms in _norms(results, instructions):
        key = f"norm/{instructions.phase}/{name}"
        earlier = baseline.get(key, norms.new_empty(0))
        round_median = median_norm(norms)
        earlier_median = median(earlier.tolist()) if len(earlier) else 0.0
        has_median = int((norms > 0).sum()) >= MIN_UPLOADS
        if round_median == 0 or name in unbounded or not (has_median or earlier_median):
            continue
        surge = surge or 0 < factor * earlier_median < round_median
        reference = round_median
        if earlier_median:
            reference = min(max(round_median, earlier_median), factor * earlier_median)
        if has_median:
            updated[key] = torch.cat([earlier, norms.new_tensor([min(round_median, reference)])])[-ROUNDS_REMEMBERED:]
        for row in torch.nonzero(norms > factor * reference).flatten().tolist():
            _scale(results, instructions, name, row, factor * reference / float(norms[row]))
            decision = _norm_decision(int(results.clients[row]), name, float(norms[row]), reference, detector)
            too_long[row] = max(decision, too_long.get(row, decision), key=lambda one: one.score)
    return Screening(updated, too_long, surge)


def find_outlier(results: CohortResults, instructions: Instructions) -> tuple[int, float, float] | None:
    """Find the upload whose norm is furthest above the median.

    Returns
    -------
    tuple or None
        Its row, its norm divided by the median, and the ratio from which a norm is an outlier. ``None`` if no norm is.
    """
    found: list[tuple[float, int, float]] = []
    for _, norms in _norms(results, instructions):
        middle = median_norm(norms)
        if middle > 0:
            logs = norms.clamp(min=middle).log() - math.log(middle)
            limit = OUTLIER_DEVIATIONS * median((norms[norms > 0].log() - math.log(middle)).abs().tolist())
            row = int(logs.argmax())
            if float(logs[row]) > limit:
                found.append((float(logs[row]), row, limit))
    if not found:
        return None
    log_ratio, row, limit = max(found)
    return row, math.exp(min(log_ratio, MAX_LOG)), math.exp(min(limit, MAX_LOG))


def judged_losses(loss: float | None, node_losses: Tensor | None = None) -> Tensor | None:
    """Return the losses by which a round is judged: those of the nodes, or the one that the server measured."""
    if node_losses is not None:
        return node_losses
    return None if loss is None else torch.tensor([loss], dtype=torch.float64)


def record_losses(baseline: NamedTensors, losses: Tensor | None) -> NamedTensors:
    """Return the baseline with the losses of an accepted round.

    Parameters
    ----------
    baseline
        What earlier rounds showed.
    losses
        One loss per evaluator: the server alone, or every client. NaN for a client that did not evaluate the model;
        ``None`` if nobody did.
    """
    if losses is None:
        return baseline
    last, lowest = _earlier_losses(baseline, losses)
    last, lowest = torch.where(losses.isnan(), last, losses), torch.fmin(lowest, losses)
    broken = losses.new_tensor([_has_risen(lowest, losses)])
    return {**baseline, "loss": torch.cat([last, lowest]), "broken": broken}


def loss_jumps(baseline: NamedTensors, losses: Tensor) -> bool:
    """Return whether losses are more than ten times those that the same evaluators last measured."""
    return _has_risen(_earlier_losses(baseline, losses)[0], losses)


def is_broken(baseline: NamedTensors) -> bool:
    """Return whether the losses of the last accepted round are more than ten times the lowest ones."""
    return bool(baseline.get("broken", False))


def median_loss(losses: Tensor) -> float:
    """Return the median of the losses of those who evaluated the model."""
    return float(median(losses[~losses.isnan()].tolist()))


def without_strikes(verdict: Verdict, before: NamedTensors, used: Collection[int]) -> Verdict:
    """Return a verdict that drops the same uploads but gives no strike and expels nobody.

    Parameters
    ----------
    verdict
        What the detector decided.
    before
        The detector's memory before the round.
    used
        The clients whose uploads are used.
    """
    memory = {**verdict.memory, "strikes": before["strikes"]}
    decisions = [
        replace(one, action="spared" if one.client in used else "dropped") if one.action == "expelled" else one
        for one in verdict.decisions
    ]
    return replace(verdict, memory=memory, decisions=decisions, expelled=())


def median_norm(norms: Tensor) -> float:
    """Return the median of the non-zero norms; with two in the middle, their geometric mean.

    >>> round(median_norm(torch.tensor([0.0, 1e-6, 1.0])), 9)
    0.001
    """
    positive = norms[norms > 0]
    return math.exp(median(positive.log().tolist())) if len(positive) else 0.0


def _earlier_losses(baseline: NamedTensors, losses: Tensor) -> Tensor:
    """Return the last and the lowest loss of each evaluator, as two rows; NaN for one that has measured none."""
    known = baseline.get("loss", losses.new_empty(0))
    unknown = losses.new_full((2, len(losses)), math.nan)
    return known.view(2, -1) if known.numel() == unknown.numel() else unknown


def _has_risen(before: Tensor, now: Tensor) -> bool:
    """Return whether more than half of the evaluators, and not one client alone, measure ten times their earlier loss.

    Each evaluator is compared with itself, so that a false loss affects no comparison but its own.
    """
    compared = ~(before.isnan() | now.isnan())
    risen = int(((MAX_LOSS_RATIO * before > 0) & (MAX_LOSS_RATIO * before < now)).sum())
    return 2 * risen > int(compared.sum()) and risen >= min(2, len(now))


def _norms(results: CohortResults, instructions: Instructions) -> Iterator[tuple[str, Tensor]]:
    """Yield the norms of each uploaded vector, and of the change of the buffers, one entry per client."""
    for name, rows in results.vectors.items():
        yield name, torch.linalg.vector_norm(rows.flatten(1), dim=1).double()
    if instructions.buffers.numel():
        yield "buffers", torch.linalg.vector_norm(results.buffers - instructions.buffers, dim=1).double()


def _scale(results: CohortResults, instructions: Instructions, name: str, row: int, factor: float) -> None:
    if name == "buffers":
        results.buffers[row].lerp_(instructions.buffers, 1 - factor)
    else:
        results.vectors[name][row].mul_(factor)


def _norm_decision(client: int, name: str, norm: float, reference: float, detector: Detector) -> Decision:
    action = "clipped" if detector.long_uploads == "clip" else "dropped"
    reason = f"the norm of {name} is {norm:.3g}, {norm / reference:.3g} times the median"
    return Decision(client, action, "norm", norm / reference, detector.max_norm, reason)
