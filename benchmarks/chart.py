"""The chart of docs/performance.md: speed relative to the plain loop, and growth with the number of clients."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

COLOURS = {"serial": "#9aa5b1", "pool": "#4c86c6", "batched": "#e07b39"}


def draw_chart(results: dict[str, Any], path: Path) -> None:
    """Draw the results of the benchmark as an SVG file."""
    plt.rcParams.update({"svg.hashsalt": "fedtaco", "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(3, 2), layout="constrained")
    _draw_engines(left, results["engines"])
    _draw_growth(right, results["growth"])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_engines(axes: Any, cases: dict[str, Any]) -> None:
    names = list(cases)[::-1]
    height = 0.26
    for place, (engine, colour) in enumerate(COLOURS.items()):
        key = f"{engine} than plain loop at its best"
        ratios = {row: cases[name]["times_faster"].get(key) for row, name in enumerate(names)}
        bars = {row + height * (1 - place): ratio for row, ratio in ratios.items() if ratio is not None}
        medians = [ratio["median"] for ratio in bars.values()]
        below = [ratio["median"] - ratio["low"] for ratio in bars.values()]
        above = [ratio["high"] - ratio["median"] for ratio in bars.values()]
        drawn = axes.barh(list(bars), medians, height, xerr=[below, above], color=colour, label=engine)
        axes.bar_label(drawn, [f" {median:.1f}×" for median in medians], padding=3)
    axes.set_yticks(range(len(names)), names)
    axes.axvline(1, color="#555555", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.4, 60)
    axes.set_xlabel("times faster than the plain PyTorch loop at its best thread count (median, quartiles)")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_growth(axes: Any, rounds: dict[str, Any]) -> None:
    full = {int(clients): own["round_ms"] for clients, own in rounds.items() if clients.isdigit()}
    axes.plot(full.keys(), full.values(), marker="o", color=COLOURS["batched"], label="measured")
    first, last = min(full), max(full)
    per_client = full[last] / last
    axes.plot([first, last], [per_client * first, full[last]], "--", color="#9aa5b1", label="proportional")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("clients (digits, mlp, 10 steps)")
    axes.set_ylabel("milliseconds per round")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
