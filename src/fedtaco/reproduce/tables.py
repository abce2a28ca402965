"""Build tables with our numbers and, in brackets, the paper's."""

from statistics import fmean, stdev
from typing import Any

from fedtaco.records.detection_rates import KAPPAS, LIMITS
from fedtaco.records.formatting import format_mean
from fedtaco.report.table_formats import FormattedTable
from fedtaco.reproduce.results import CellResult, Reproduction

TIMEOUT_FACTOR = 1.8
"""A method that takes more than this many times FedAvg's seconds to the target is marked ○."""


def build_table(reproduction: Reproduction) -> FormattedTable:
    """Return the table of a reproduction, whose layout depends on what it shows.

    Returns
    -------
    FormattedTable
        One row per variant and one column per panel; for ``alpha`` one row per kind of client, for
        ``thresholds`` one row per κ.
    """
    builders = {"alpha": _alpha_table, "thresholds": _threshold_table}
    return builders.get(reproduction.shows, _method_table)(reproduction)


def _method_table(reproduction: Reproduction) -> FormattedTable:
    panels, variants = reproduction.panels, reproduction.variants
    rows = [[variant, *(_format_cell(reproduction, panel, variant) for panel in panels)] for variant in variants]
    return FormattedTable(["method", *panels], rows, [_numbers(cell) for cell in reproduction.cells])


def _numbers(cell: CellResult) -> dict[str, Any]:
    ours = cell.ours
    return {
        "panel": cell.panel,
        "variant": cell.variant,
        "seeds": len(cell.summaries),
        "accuracy": ours and ours.accuracy,
        "deviation": ours and ours.accuracy_deviation,
        "rounds_to_target": ours and ours.paper_mark,
        "round_seconds": cell.seconds,
        "seconds_to_target": cell.seconds_to_target,
        "paper": cell.paper,
    }


def _text_table(header: list[str], rows: list[list[str]]) -> FormattedTable:
    """Return a table whose formatted cells are also its records."""
    return FormattedTable(header, rows, [dict(zip(header, row, strict=True)) for row in rows])


def _format_cell(reproduction: Reproduction, panel: str, variant: str) -> str:
    cell, fedavg = reproduction.cell(panel, variant), reproduction.cell(panel, "fedavg")
    if cell is None:
        return ""
    if reproduction.shows == "accuracy":
        return f"{_our_accuracy(cell)}{_brackets(_paper_mean(cell.paper))}"
    if reproduction.shows in ("rounds", "curves"):
        return _accuracy_and_rounds(cell)
    if reproduction.shows == "time-to-accuracy":
        return _time_to_accuracy(cell, fedavg)
    factor = 100 / cell.local_steps if reproduction.shows == "update-time" else 1.0
    return _format_round_seconds(cell, fedavg, factor)


def _accuracy_and_rounds(cell: CellResult) -> str:
    rounds = "" if cell.ours is None else f", {cell.ours.paper_mark}"
    paper = _paper_mean(cell.paper)
    if isinstance(cell.paper, list) and len(cell.paper) > 2:
        paper = f"{paper}, {str(cell.paper[2]).replace('x', '×')}"
    return f"{_our_accuracy(cell)}{rounds}{_brackets(paper)}"


def _time_to_accuracy(cell: CellResult, fedavg: CellResult | None) -> str:
    seconds, reference = cell.seconds_to_target, None if fedavg is None else fedavg.seconds_to_target
    if seconds is None:
        return "–" if cell.ours is None or cell.ours.reached_target else cell.ours.paper_mark
    if reference is None:
        return _format_seconds(seconds)
    mark = " ○" if seconds > TIMEOUT_FACTOR * reference else ""
    return f"{_format_seconds(seconds)}, {seconds / reference:.2f}×{mark}"


def _format_round_seconds(cell: CellResult, fedavg: CellResult | None, factor: float) -> str:
    """Format the seconds of a round, multiplied by ``factor``, and the percentage by which they exceed FedAvg's."""
    if cell.seconds is None:
        return "–"
    more = f", {100 * (cell.seconds / fedavg.seconds - 1):+.1f} %" if fedavg and fedavg.seconds else ""
    paper = "" if cell.paper is None else f"{cell.paper:g} s"
    return f"{_format_seconds(factor * cell.seconds)}{more}{_brackets(paper)}"


def _format_seconds(seconds: float) -> str:
    """Format seconds with three significant digits, or as a whole number if they are many.

    >>> _format_seconds(0.01234), _format_seconds(12345.6)
    ('0.0123 s', '12346 s')
    """
    return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.3g} s"


def _our_accuracy(cell: CellResult) -> str:
    ours = cell.ours
    return "–" if ours is None else format_mean(ours.accuracy, ours.accuracy_deviation, digits=2, scale=100)


def _paper_mean(paper: Any) -> str:
    if paper is None:
        return ""
    mean, deviation = paper[:2] if isinstance(paper, list) else (paper, None)
    return format_mean(mean, deviation, digits=2)


def _brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _alpha_table(reproduction: Reproduction) -> FormattedTable:
    """Return a table of mean α, with one row per kind of client and one column per cell."""
    cells = reproduction.cells
    kinds = sorted({kind for cell in cells for kind in cell.alpha})
    rows = [[kind, *(_format_alpha(cell, kind) for cell in cells)] for kind in kinds]
    return _text_table(["α of", *(_column_name(reproduction, cell) for cell in cells)], rows)


def _format_alpha(cell: CellResult, kind: str) -> str:
    own = cell.alpha.get(kind)
    ours = "–" if own is None else format_mean(fmean(own), stdev(own) if len(own) > 1 else None, digits=2)
    return f"{ours}{_brackets(_paper_mean((cell.paper or {}).get(kind)))}"


def _threshold_table(reproduction: Reproduction) -> FormattedTable:
    """Return a table of detection rates, with one row per κ and one column per λ."""
    columns = [(cell, limit) for cell in reproduction.cells for limit in LIMITS]
    rows = [[f"κ = {kappa:.1f}", *(_format_rates(cell, kappa, limit) for cell, limit in columns)] for kappa in KAPPAS]
    names = [f"{_column_name(reproduction, cell)}, λ = {limit}" for cell, limit in columns]
    return _text_table(["TPR / FPR, %", *names], rows)


def _format_rates(cell: CellResult, kappa: float, limit: str) -> str:
    rates = [own[kappa, limit] for own in cell.threshold_rates]
    ours = [100 * fmean(rate.true_positive for rate in rates), 100 * fmean(rate.false_positive for rate in rates)]
    row = (cell.paper or {}).get(f"lambda={limit}", {})
    paper = row.get(f"{kappa:.1f}", row.get("0.6-0.8", []))  # the paper gives one pair for κ from 0.6 to 0.8
    return " / ".join(f"{value:.3g}" for value in ours) + _brackets(" / ".join(f"{value:g}" for value in paper))


def _column_name(reproduction: Reproduction, cell: CellResult) -> str:
    return cell.panel if len(reproduction.variants) == 1 else f"{cell.panel}, {cell.variant}"
