"""The benchmark as one picture: times faster than the plain loop, and growth with the number of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

COLOURS = {"serial": "#9aa5b1", "pool": "#4c86c6", "batched": "#e07b39"}


def draw(results: dict[str, Any], path: Path) -> None:
    plt.rcParams.update({"svg.hashsalt": "fedtaco", "font.size": 9})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(3, 2), layout="constrained")
    _engines(left, results["engines"])
    _growth(right, results["growth"])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _engines(axes: Any, cases: dict[str, Any]) -> None:
    names = list(cases)[::-1]
    height = 0.26
    for place, engine in enumerate(COLOURS):
        key = f"{engine} than plain loop at its best"
        found = [(row, cases[name]["times_faster"].get(key)) for row, name in enumerate(names)]
        bars = [(row + height * (1 - place), one) for row, one in found if one is not None]
        values = [one["median"] for _, one in bars]
        spread = [[one["median"] - one["low"] for _, one in bars], [one["high"] - one["median"] for _, one in bars]]
        drawn = axes.barh([at for at, _ in bars], values, height, xerr=spread, color=COLOURS[engine], label=engine)
        axes.bar_label(drawn, [f" {value:.1f}×" for value in values], padding=3)
    axes.set_yticks(range(len(names)), names)
    axes.axvline(1, color="#555555", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.4, 60)
    axes.set_xlabel("times faster than the plain PyTorch loop at its best thread count (median, quartiles)")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)


def _growth(axes: Any, rounds: dict[str, Any]) -> None:
    whole = {int(clients): one["round_ms"] for clients, one in rounds.items() if clients.isdigit()}
    axes.plot(whole.keys(), whole.values(), marker="o", color=COLOURS["batched"], label="measured")
    first, last = min(whole), max(whole)
    per_client = whole[last] / last
    axes.plot([first, last], [per_client * first, whole[last]], "--", color="#9aa5b1", label="in proportion")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("clients (digits, mlp, 10 steps)")
    axes.set_ylabel("milliseconds a round")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
