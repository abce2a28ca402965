"""The paper's two tables about freeloaders: the average α of each group, and what κ and λ do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

from fedtaco.report.detection import KAPPAS, LIMITS
from fedtaco.report.reproduction import Cell, Grid, Reproduction, in_brackets


def alpha_grid(reproduction: Reproduction) -> Grid:
    """A row a kind of client, a column a dataset."""
    kinds = sorted({kind for cell in reproduction.cells for kind in alphas(cell)})
    rows = [[kind, *(_alpha(cell, kind) for cell in reproduction.cells)] for kind in kinds]
    return Grid(["α of", *(_column(reproduction, cell) for cell in reproduction.cells)], rows)


def _column(reproduction: Reproduction, cell: Cell) -> str:
    return cell.panel if len(reproduction.variants) == 1 else f"{cell.panel}, {cell.variant}"


def alphas(cell: Cell) -> dict[str, list[float]]:
    """The mean α of each kind of client, a number a seed."""
    kinds = {kind for summary in cell.summaries for kind in summary["alpha"]}
    return {kind: [summary["alpha"][kind] for summary in cell.summaries if kind in summary["alpha"]] for kind in kinds}


def _alpha(cell: Cell, kind: str) -> str:
    own = alphas(cell).get(kind)
    paper = (cell.paper or {}).get(kind)
    stated = "" if paper is None else f"{paper[0]:.2f} ± {paper[1]:.2f}"
    return f"{'–' if own is None else _spread(own)}{in_brackets(stated)}"


def _spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def threshold_grid(reproduction: Reproduction) -> Grid:
    """A row a κ, a column a λ: the freeloaders and the honest clients that would be expelled."""
    columns = [(cell, limit) for cell in reproduction.cells for limit in LIMITS]
    rows = [[f"κ = {kappa:.1f}", *(_rates(cell, kappa, limit) for cell, limit in columns)] for kappa in KAPPAS]
    return Grid(["TPR / FPR, %", *(f"{_column(reproduction, cell)}, λ = {limit}" for cell, limit in columns)], rows)


def _rates(cell: Cell, kappa: float, limit: str) -> str:
    scored = [rates[kappa, limit] for rates in cell.threshold_rates]
    ours = [100 * fmean(values) for values in zip(*((r.true_positive, r.false_positive) for r in scored), strict=True)]
    stated = _paper_rates(cell.paper, kappa, limit)
    return " / ".join(f"{value:.3g}" for value in ours) + in_brackets(" / ".join(f"{value:g}" for value in stated))


def _paper_rates(paper: Any, kappa: float, limit: str) -> Sequence[float]:
    """The paper gives one number for κ from 0.6 to 0.8."""
    row = (paper or {}).get(f"lambda={limit}", {})
    found: Sequence[float] = row.get(f"{kappa:.1f}", row.get("0.6-0.8", []))
    return found
