"""Figures of accuracy over rounds, for papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedtaco.errors import InvalidInput
from fedtaco.files import replacing, writing
from fedtaco.records import History
from fedtaco.records.formatting import format_target
from fedtaco.report.charts import over_seeds
from fedtaco.report.colours import ON_LIGHT
from fedtaco.report.heatmap import Floats
from fedtaco.report.labels import figure_class
from fedtaco.report.output_files import PLOT_SUFFIXES, check_output_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKERS = "osD^Xv*"
DASHES = ("solid", "dashed", "dotted", "dashdot")
MUTED, GRID = "#566070", "#dce1e8"
LEGEND_INSIDE = 4
"""Maximum number of curves whose legend is inside the axes; with more, it is beside them, where it covers nothing."""


def plot_accuracy(
    histories: Mapping[str, Sequence[History]], path: str | Path | None = None, target: float | None = None
) -> Figure:
    """Draw the test accuracy of methods over rounds, with the colours of the report.

    Parameters
    ----------
    histories
        The histories of each method, one per seed. A line is the mean over the seeds that reached the round; its band
        extends from the lowest to the highest seed.
    path
        File in which to save the figure; its suffix, .pdf, .png or .svg, determines the format.
    target
        Accuracy to mark with a horizontal line.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    InvalidInput
        If matplotlib is not installed, no accuracy was measured, or the file has another suffix or cannot be written.

    Examples
    --------
    >>> from fedtaco.records import RoundRecord
    >>> history = History([RoundRecord(1, 0.5, 1.0, None, 1.0), RoundRecord(2, 0.8, 0.5, None, 1.0)])
    >>> figure = plot_accuracy({"taco": [history]}, target=0.7)
    >>> figure.axes[0].get_ylabel()
    'test accuracy, %'
    """
    if path is not None:
        check_output_file(Path(path), PLOT_SUFFIXES, "path")
    beside = len(histories) > LEGEND_INSIDE
    figure: Figure = figure_class()(figsize=(7.0 if beside else 5.0, 3.2), layout="constrained")
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    if not any(record.accuracy is not None for own in histories.values() for history in own for record in history):
        raise InvalidInput("There is no test accuracy to draw; run with a test set.")
    for index, (name, own) in enumerate(histories.items()):
        curves = [100 * np.array(history.column("accuracy"), dtype=np.float64) for history in own]
        draw_mean(axes, curves, label=name.replace("$", r"\$"), **_style(index))
    if target is not None:
        _draw_target(axes, target)
    axes.set(xlabel="round", ylabel="test accuracy, %")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRID, linewidth=0.6)
    if beside:
        figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    elif axes.lines:
        axes.legend(frameon=False, fontsize="small")
    if path is not None:
        save_figure(figure, Path(path))
    return figure


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure; an existing file is replaced once the new one is complete. Equal figures give equal files."""
    from matplotlib import rc_context

    kind = path.suffix[1:]
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    # publishers ask for TrueType fonts; the salt makes the identifiers in an SVG the same every time
    with writing(path), replacing(path) as temporary, rc_context({"pdf.fonttype": 42, "svg.hashsalt": "fedtaco"}):
        figure.savefig(temporary, format=kind, dpi=200, metadata=dates.get(kind))


def draw_mean(axes: Any, curves: Sequence[Floats], seconds: float = 1.0, **style: Any) -> None:
    """Draw the mean of curves over rounds, with a band from the lowest to the highest.

    Parameters
    ----------
    axes
        Where to draw.
    curves
        One number per round, nan if not measured; a curve may end early.
    seconds
        Seconds of a round, to draw over seconds instead.
    **style
        Label, colour and the like of the line.
    """
    if not any(np.isfinite(curve).any() for curve in curves):
        return
    mean, low, high = (over_seeds(function, curves) for function in (np.nanmean, np.nanmin, np.nanmax))
    measured = np.isfinite(mean)
    x = seconds * (1 + np.flatnonzero(measured))
    (line,) = axes.plot(x, mean[measured], **{"linewidth": 1.5, **style})
    if len(curves) > 1:
        axes.fill_between(x, low[measured], high[measured], color=line.get_color(), alpha=0.15, linewidth=0)


def _style(index: int) -> dict[str, Any]:
    """Return colour, dashes and markers of a method, by which lines can be told apart without colour as well."""
    colours = len(ON_LIGHT)
    return {
        "color": ON_LIGHT[index % colours],
        "linestyle": DASHES[index // colours % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markevery": 0.12,
        "markersize": 4,
    }


def _draw_target(axes: Any, target: float) -> None:
    axes.axhline(100 * target, color=MUTED, linewidth=0.9, linestyle=":")
    place = {"xycoords": ("axes fraction", "data"), "xytext": (0, 2), "textcoords": "offset points"}
    axes.annotate(f"target {format_target(target)}", (0.01, 100 * target), color=MUTED, fontsize="small", **place)
