"""The figures of a benchmark: differences to the reference on several tasks, and accuracy over rounds on one."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from fedtaco.benchmark.plan import CONTROL_FOLDERS
from fedtaco.benchmark.task_comparison import TaskComparison
from fedtaco.records import History, RoundRecord
from fedtaco.report.colours import ON_LIGHT
from fedtaco.report.labels import figure_class
from fedtaco.report.plots import GRID, MUTED, plot_accuracy, save_figure

MAX_CURVES = 7
"""Maximum number of methods whose accuracy over rounds is drawn."""
COLUMNS = 3
"""Maximum number of tasks side by side."""
LINEAR = 1.0
"""Differences up to this number of percentage points are drawn on a linear scale, larger ones on a logarithmic one."""


def draw_differences(comparisons: Sequence[TaskComparison], path: Path) -> bool:
    """Draw the difference of each method to the reference with its confidence interval, with one panel per task.

    Differences that are significant are filled dots, the others circles.

    Parameters
    ----------
    comparisons
        The methods on each task.
    path
        File to write; its suffix, .pdf, .png or .svg, determines the format.

    Returns
    -------
    bool
        Whether there is a difference to draw; if not, no file is written.
    """
    differences = [
        {entry.name: one.difference(entry.name, one.reference) for entry in one.entries if one.is_paired(entry.name)}
        for one in comparisons
    ]
    names = list(dict.fromkeys(name for own in differences for name, found in own.items() if found is not None))
    if not names:
        return False
    rows = ceil(len(comparisons) / COLUMNS)
    columns = ceil(len(comparisons) / rows)
    size = 2.0 + 2.6 * columns, rows * (0.8 + 0.2 * len(names))
    figure = figure_class()(figsize=size, layout="constrained")
    panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axes, one, own in zip(panels, comparisons, differences, strict=False):
        _prepare_panel(axes, one, names)
        significant = {*one.significantly_above, *one.significantly_below}
        for row, name in enumerate(names):
            found = own.get(name)
            if found is not None:
                error = [[100 * (found.mean - found.low)], [100 * (found.high - found.mean)]]
                fill = ON_LIGHT[0] if name in significant else "white"
                style = {"color": ON_LIGHT[0], "markerfacecolor": fill, "markersize": 5, "linewidth": 1.2}
                axes.errorbar([100 * found.mean], [row], xerr=error, fmt="o", **style)
    for axes in panels[len(comparisons) :]:
        axes.set_visible(False)
    save_figure(figure, path)
    return True


def _prepare_panel(axes: Any, comparison: TaskComparison, names: Sequence[str]) -> None:
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.8)
    axes.tick_params(labelsize="small")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
    axes.axvline(0, color=MUTED, linewidth=0.9)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_yticks(range(len(names)), [_escape(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(_escape(comparison.task.name), fontsize="medium")
    axes.set_xlabel(_escape(f"difference to {comparison.reference}, points"), fontsize="small")


def _escape(text: str) -> str:
    return text.replace("$", r"\$")


def draw_curves(comparison: TaskComparison, path: Path) -> list[str]:
    """Draw the accuracy over rounds of the reference and of the methods with the highest accuracy.

    Controls are left out: as they are not tuned, many stay at chance level.

    Parameters
    ----------
    comparison
        The methods on a task.
    path
        File to write; its suffix, .pdf, .png or .svg, determines the format.

    Returns
    -------
    list of str
        Names of the methods that are drawn; if there are none, no file is written.
    """
    others = [name for name in comparison.ranking if name != comparison.reference and name not in CONTROL_FOLDERS]
    drawn = [name for name in (comparison.reference, *others) if name in comparison.curves][:MAX_CURVES]
    if drawn:
        histories = {name: [_history(curve) for curve in comparison.curves[name]] for name in drawn}
        plot_accuracy(histories, path, comparison.task.target)
    return drawn


def _history(accuracies: Sequence[float]) -> History:
    return History([RoundRecord(number, accuracy, None, None, 0.0) for number, accuracy in enumerate(accuracies, 1)])
