"""Reproductions as CSV, LaTeX and figures."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedtaco.report.detection import KAPPAS, LIMITS
from fedtaco.report.freeloaders import alpha_grid, alphas, threshold_grid
from fedtaco.report.labels import matplotlib_figure
from fedtaco.report.reproduction import Cell, Grid, Reproduction, method_grid

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")


def grid_of(reproduction: Reproduction) -> Grid:
    """The table of a reproduction, our numbers with the paper's in brackets."""
    grids = {"alpha": alpha_grid, "thresholds": threshold_grid}
    return grids.get(reproduction.shows, method_grid)(reproduction)


def export(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Write CSV, LaTeX, SVG and PNG named after the reproduction; the paths written."""
    stem = folder / reproduction.name
    write_csv(reproduction, stem.with_suffix(".csv"))
    write_latex(reproduction, stem.with_suffix(".tex"))
    return [stem.with_suffix(end) for end in (".csv", ".tex")] + draw(reproduction, stem)


def write_csv(reproduction: Reproduction, path: Path) -> None:
    """A row a cell, with all numbers apart; the table itself where its cells are no accuracies."""
    if reproduction.shows in ("alpha", "thresholds"):
        grid = grid_of(reproduction)
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([grid.headers, *grid.rows])
        return
    names = ("panel", "variant", "seeds", "accuracy", "deviation", "rounds_to_target", "round_seconds")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "seconds_to_target", "paper"])
        for cell in reproduction.cells:
            ours = cell.ours
            figures = [None] * 3 if ours is None else [ours.accuracy, ours.accuracy_deviation, ours.rounds_to_target]
            seconds = [cell.seconds, cell.seconds_to_target]
            writer.writerow([cell.panel, cell.variant, len(cell.summaries), *figures, *seconds, cell.paper])


def write_latex(reproduction: Reproduction, path: Path) -> None:
    """A booktabs table."""
    grid = grid_of(reproduction)
    body = [" & ".join(_latex(text) for text in row) + r" \\" for row in grid.rows]
    lines = [
        r"\begin{table}",
        rf"\caption{{{_latex(reproduction.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(grid.headers) - 1)}}}",
        r"\toprule",
        " & ".join(_latex(text) for text in grid.headers) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _latex(text: str) -> str:
    for plain, command in (
        ("%", r"\%"),
        ("±", r"$\pm$"),
        ("×", r"$\times$"),
        ("○", r"$\circ$"),
        ("γ", r"$\gamma$"),
        ("α", r"$\alpha$"),
        ("κ", r"$\kappa$"),
        ("λ", r"$\lambda$"),
    ):
        text = text.replace(plain, command)
    return text.replace("_", r"\_").replace("–", "--")


def draw(reproduction: Reproduction, stem: Path) -> list[Path]:
    """A figure with a part for each panel, as SVG and PNG."""
    panels = reproduction.panels
    timed = reproduction.shows == "curves" and any(cell.seconds for cell in reproduction.cells)
    figure = matplotlib_figure()(figsize=(4.2 * len(panels), 6.4 if timed else 3.4), layout="constrained")
    grid = figure.subplots(2 if timed else 1, len(panels), squeeze=False)
    for column, panel in enumerate(panels):
        cells = [cell for cell in reproduction.cells if cell.panel == panel]
        if reproduction.shows in ("curves", "rounds"):
            for row, axes in enumerate(grid[:, column]):
                _curves(axes, cells, reproduction.variants, over_time=row == 1)
        elif reproduction.shows == "alpha":
            _alpha_bars(grid[0, column], cells)
        elif reproduction.shows == "thresholds":
            _rates_over_kappa(grid[0, column], cells)
        else:
            _bars(grid[0, column], cells, reproduction)
        grid[0, column].set_title(panel)
    grid[0, 0].legend(*grid[0, 0].get_legend_handles_labels(), frameon=False, fontsize="small")
    paths = [stem.with_suffix(end) for end in (".svg", ".png")]
    for path in paths:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _curves(axes: Any, cells: Sequence[Cell], variants: Sequence[str], *, over_time: bool) -> None:
    for cell in cells:
        runs = [np.array(curve, dtype=float) for curve in cell.curves]
        length = max((len(run) for run in runs), default=0)
        if length == 0 or (over_time and cell.seconds is None):
            continue
        whole = np.full((len(runs), length), np.nan)
        for row, run in zip(whole, runs, strict=True):
            row[: len(run)] = run
        x = np.arange(1, length + 1) * ((over_time and cell.seconds) or 1)
        colour = COLOURS[variants.index(cell.variant) % len(COLOURS)]
        axes.plot(x, 100 * np.nanmean(whole, axis=0), color=colour, label=cell.variant, linewidth=1.4)
        if len(runs) > 1:
            axes.fill_between(
                x, 100 * np.nanmin(whole, axis=0), 100 * np.nanmax(whole, axis=0), color=colour, alpha=0.15, linewidth=0
            )
    axes.set(xlabel="client seconds" if over_time else "round", ylabel="test accuracy, %")


def _bars(axes: Any, cells: Sequence[Cell], reproduction: Reproduction) -> None:
    bars = list(_heights(cells, reproduction.shows))
    colours = [COLOURS[reproduction.variants.index(variant) % len(COLOURS)] for variant, _, _ in bars]
    axes.bar([variant for variant, _, _ in bars], [height for _, height, _ in bars], color=colours)
    for place, (_, height, note) in enumerate(bars):
        axes.annotate(note, (place, height), ha="center", va="bottom", fontsize="small")
    axes.tick_params(axis="x", rotation=60)
    accuracy = reproduction.shows == "accuracy"
    axes.set_ylabel("test accuracy, %" if accuracy else "client seconds")


def _heights(cells: Sequence[Cell], shows: str) -> Iterator[tuple[str, float, str]]:
    for cell in cells:
        mark = "" if cell.ours is None else cell.ours.rounds_to_target
        if shows == "accuracy":
            yield cell.variant, 100 * ((cell.ours and cell.ours.accuracy) or 0.0), ""
        elif shows == "time-to-accuracy":
            reached = cell.seconds_to_target is not None
            yield cell.variant, cell.seconds_to_target or 0.0, "" if reached else mark
        else:
            yield cell.variant, cell.seconds or 0.0, ""


def _alpha_bars(axes: Any, cells: Sequence[Cell]) -> None:
    """Ours as bars, the paper's as points."""
    for cell in cells:
        own = alphas(cell)
        kinds = sorted(own)
        axes.bar(kinds, [np.mean(own[kind]) for kind in kinds], color=COLOURS[: len(kinds)])
        stated = [(cell.paper or {}).get(kind, [np.nan])[0] for kind in kinds]
        axes.plot(kinds, stated, "k_", markersize=18, label="the paper's")
    axes.set(ylabel="average α", ylim=(0, 1))


def _rates_over_kappa(axes: Any, cells: Sequence[Cell]) -> None:
    for cell in cells:
        for colour, limit in zip(COLOURS, LIMITS, strict=False):
            rates = [[seed[kappa, limit] for seed in cell.threshold_rates] for kappa in KAPPAS]
            caught = [100 * np.mean([one.true_positive for one in own]) for own in rates]
            wronged = [100 * np.mean([one.false_positive for one in own]) for own in rates]
            axes.plot(KAPPAS, caught, "o-", color=colour, label=f"freeloaders, λ = {limit}")
            axes.plot(KAPPAS, wronged, "x--", color=colour, label=f"honest, λ = {limit}")
    axes.set(xlabel="κ", ylabel="expelled, %", ylim=(-5, 105))
