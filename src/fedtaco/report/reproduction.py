"""A table or figure of the paper with our numbers in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from fedtaco.report.detection import Rates
from fedtaco.report.summary import Comparison, compare_runs

TIMEOUT = 1.8
"""A method that takes this many times FedAvg's seconds to the target is marked ○."""


@dataclass(frozen=True)
class Cell:
    """One variant in one panel: its runs, one a seed, its seconds, and what the paper has there."""

    panel: str
    variant: str
    local_steps: int
    summaries: Sequence[Mapping[str, Any]]
    curves: Sequence[Sequence[float | None]]
    """Accuracy after each round, for each seed."""
    round_seconds: Sequence[float]
    """Seconds of the slowest client in a round."""
    paper: Any
    threshold_rates: Sequence[Mapping[tuple[float, str], Rates]] = ()
    """What the paper's detector would do at each of its thresholds, for each seed."""

    @property
    def ours(self) -> Comparison | None:
        return compare_runs(self.summaries)[0] if self.summaries else None

    @property
    def seconds(self) -> float | None:
        """The median round's."""
        return median(self.round_seconds) if self.round_seconds else None

    @property
    def seconds_to_target(self) -> float | None:
        """Mean rounds to the target times the seconds of a round; ``None`` where a seed fails or does not reach it."""
        rounds = [run["rounds_to_target"] for run in self.summaries]
        if self.ours is None or self.ours.rounds_to_target == "×" or None in rounds or self.seconds is None:
            return None
        return self.seconds * fmean(rounds)


@dataclass(frozen=True)
class Reproduction:
    """All cells of a table or figure, and what was cut from the paper's settings."""

    name: str
    title: str
    shows: str
    cells: Sequence[Cell]
    cuts: Sequence[str]
    seeds: int

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(cell.panel for cell in self.cells))

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(cell.variant for cell in self.cells))

    def cell(self, panel: str, variant: str) -> Cell | None:
        return next((cell for cell in self.cells if (cell.panel, cell.variant) == (panel, variant)), None)

    @property
    def caption(self) -> str:
        seeds = "one seed" if self.seeds == 1 else f"mean ± deviation over {self.seeds} seeds"
        cut = f" Cut from the paper's settings: {'; '.join(self.cuts)}." if self.cuts else " The paper's settings."
        return f"{self.title}: ours, {seeds}; the paper's in brackets.{cut}"


@dataclass(frozen=True)
class Grid:
    """A table as it is shown."""

    headers: list[str]
    rows: list[list[str]]


def method_grid(reproduction: Reproduction) -> Grid:
    """A row a method, a column a panel; our numbers with the paper's in brackets."""
    rows = [
        [variant, *(_shown(reproduction, panel, variant) for panel in reproduction.panels)]
        for variant in reproduction.variants
    ]
    return Grid(["method", *reproduction.panels], rows)


def _shown(reproduction: Reproduction, panel: str, variant: str) -> str:
    cell = reproduction.cell(panel, variant)
    if cell is None:
        return ""
    base = reproduction.cell(panel, "fedavg")
    return {
        "rounds": _accuracy_and_rounds,
        "accuracy": _accuracy,
        "curves": _accuracy_and_rounds,
        "time-to-accuracy": _time_to_accuracy,
        "update-time": _update_time,
        "round-time": _round_time,
    }[reproduction.shows](cell, base)


def _accuracy(cell: Cell, _: Cell | None) -> str:
    return f"{_percent(cell.ours)}{in_brackets(_paper_accuracy(cell.paper))}"


def _accuracy_and_rounds(cell: Cell, _: Cell | None) -> str:
    rounds = "" if cell.ours is None else f", {cell.ours.rounds_to_target}"
    paper = _paper_accuracy(cell.paper)
    if isinstance(cell.paper, list) and len(cell.paper) > 2:
        paper = f"{paper}, {str(cell.paper[2]).replace('x', '×')}"
    return f"{_percent(cell.ours)}{rounds}{in_brackets(paper)}"


def _time_to_accuracy(cell: Cell, base: Cell | None) -> str:
    seconds, reference = cell.seconds_to_target, None if base is None else base.seconds_to_target
    if seconds is None:
        return "–" if cell.ours is None or cell.ours.reached_target else cell.ours.rounds_to_target
    late = " ○" if reference is not None and seconds > TIMEOUT * reference else ""
    part = "" if reference is None else f", {seconds / reference:.2f}×"
    return f"{_shown_seconds(seconds)}{part}{late}"


def _round_time(cell: Cell, base: Cell | None) -> str:
    return _timed(cell.seconds, None if base is None else base.seconds, cell.paper)


def _update_time(cell: Cell, base: Cell | None) -> str:
    per_hundred = None if cell.seconds is None else 100 * cell.seconds / cell.local_steps
    reference = None if base is None or base.seconds is None else 100 * base.seconds / base.local_steps
    return _timed(per_hundred, reference, cell.paper)


def _timed(seconds: float | None, reference: float | None, paper: Any) -> str:
    if seconds is None:
        return "–"
    part = "" if not reference else f", {100 * (seconds / reference - 1):+.1f} %"
    return f"{_shown_seconds(seconds)}{part}{in_brackets('' if paper is None else f'{paper:g} s')}"


def _shown_seconds(seconds: float) -> str:
    """Three figures, or all before the point.

    >>> _shown_seconds(0.01234), _shown_seconds(12345.6)
    ('0.0123 s', '12346 s')
    """
    return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.3g} s"


def _percent(ours: Comparison | None) -> str:
    if ours is None or ours.accuracy is None:
        return "–"
    spread = "" if ours.accuracy_deviation is None else f" ± {100 * ours.accuracy_deviation:.2f}"
    return f"{100 * ours.accuracy:.2f}{spread}"


def _paper_accuracy(paper: Any) -> str:
    if paper is None:
        return ""
    return f"{paper[0]:.2f} ± {paper[1]:.2f}" if isinstance(paper, list) else f"{paper:.2f}"


def in_brackets(text: str) -> str:
    return f" ({text})" if text else ""
