"""Draw the figure of a reproduction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.records.detection_rates import KAPPAS, LIMITS
from fedtaco.report.labels import figure_class
from fedtaco.report.plots import draw_mean
from fedtaco.reproduce.results import CellResult, Reproduction

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")


def draw_figure(reproduction: Reproduction, stem: Path) -> list[Path]:
    """Draw a figure with one subplot per panel.

    Parameters
    ----------
    reproduction
        What to draw; its ``shows`` determines the kind of chart.
    stem
        Path of the files to write, without suffix.

    Returns
    -------
    list of Path
        The SVG and the PNG file.

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    panels, shows = reproduction.panels, reproduction.shows
    timed = shows == "curves" and any(cell.seconds for cell in reproduction.cells)
    figure = figure_class()(figsize=(4.2 * len(panels), 6.4 if timed else 3.4), layout="constrained")
    parts = figure.subplots(2 if timed else 1, len(panels), squeeze=False)
    for column, panel in enumerate(panels):
        cells = [cell for cell in reproduction.cells if cell.panel == panel]
        axes = parts[0, column]
        if shows in ("curves", "rounds"):
            for row, part in enumerate(parts[:, column]):
                _draw_curves(part, cells, reproduction.variants, over_time=row == 1)
        elif shows == "alpha":
            _draw_alpha(axes, cells)
        elif shows == "thresholds":
            _draw_rates(axes, cells)
        else:
            _draw_bars(axes, cells, reproduction)
        axes.set_title(panel)
    parts[0, 0].legend(*parts[0, 0].get_legend_handles_labels(), frameon=False, fontsize="small")
    paths = [stem.with_suffix(end) for end in (".svg", ".png")]
    for path in paths:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _draw_curves(axes: Any, cells: Sequence[CellResult], variants: Sequence[str], *, over_time: bool) -> None:
    for cell in cells:
        runs = [100 * np.array(curve, dtype=float) for curve in cell.curves]
        if not any(map(len, runs)) or (over_time and cell.seconds is None):
            continue
        scale = (over_time and cell.seconds) or 1
        draw_mean(axes, runs, scale, color=_colour(variants, cell.variant), label=cell.variant, linewidth=1.4)
    axes.set(xlabel="client seconds" if over_time else "round", ylabel="test accuracy, %")


def _draw_bars(axes: Any, cells: Sequence[CellResult], reproduction: Reproduction) -> None:
    bars = [_height_and_mark(cell, reproduction.shows) for cell in cells]
    colours = [_colour(reproduction.variants, cell.variant) for cell in cells]
    axes.bar([cell.variant for cell in cells], [height for height, _ in bars], color=colours)
    for index, (height, mark) in enumerate(bars):
        axes.annotate(mark, (index, height), ha="center", va="bottom", fontsize="small")
    axes.tick_params(axis="x", rotation=60)
    axes.set_ylabel("test accuracy, %" if reproduction.shows == "accuracy" else "client seconds")


def _height_and_mark(cell: CellResult, shows: str) -> tuple[float, str]:
    """Return the height of a cell's bar and the mark above it."""
    if shows == "accuracy":
        return 100 * ((cell.ours and cell.ours.accuracy) or 0.0), ""
    if shows == "time-to-accuracy":
        mark = "" if cell.seconds_to_target is not None or cell.ours is None else cell.ours.paper_mark
        return cell.seconds_to_target or 0.0, mark
    return cell.seconds or 0.0, ""


def _draw_alpha(axes: Any, cells: Sequence[CellResult]) -> None:
    """Draw our α as bars and the paper's as short lines."""
    for cell in cells:
        kinds = sorted(cell.alpha)
        axes.bar(kinds, [np.mean(cell.alpha[kind]) for kind in kinds], color=COLOURS[: len(kinds)])
        paper = [(cell.paper or {}).get(kind, [np.nan])[0] for kind in kinds]
        axes.plot(kinds, paper, "k_", markersize=18, label="the paper's")
    axes.set(ylabel="average α", ylim=(0, 1))


def _draw_rates(axes: Any, cells: Sequence[CellResult]) -> None:
    for cell in cells:
        for colour, limit in zip(COLOURS, LIMITS, strict=False):
            rates = [[own[kappa, limit] for own in cell.threshold_rates] for kappa in KAPPAS]
            caught = [100 * np.mean([rate.true_positive for rate in own]) for own in rates]
            honest_expelled = [100 * np.mean([rate.false_positive for rate in own]) for own in rates]
            axes.plot(KAPPAS, caught, "o-", color=colour, label=f"freeloaders, λ = {limit}")
            axes.plot(KAPPAS, honest_expelled, "x--", color=colour, label=f"honest, λ = {limit}")
    axes.set(xlabel="κ", ylabel="expelled, %", ylim=(-5, 105))


def _colour(variants: Sequence[str], variant: str) -> str:
    return COLOURS[variants.index(variant) % len(COLOURS)]
