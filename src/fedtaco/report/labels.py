"""Measure how much the label distributions of clients differ, and draw them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.errors import InvalidInput

LabelCounts = npt.NDArray[np.int64]
"""Number of samples, one row per client and one column per label."""


def heterogeneity(counts: LabelCounts) -> dict[str, float]:
    """Return figures on how much the clients' data differ.

    Besides sizes and labels per client, ``label_distance`` is the mean total variation distance between a
    client's label distribution and the overall one: 0 for IID data, near 1 if many clients share no labels.

    >>> heterogeneity(np.array([[5, 0], [0, 5]]))["label_distance"]
    0.5
    """
    sizes = counts.sum(1)
    own, overall = counts / sizes[:, None], counts.sum(0) / counts.sum()
    return {
        "smallest_client": float(sizes.min()),
        "median_client": float(np.median(sizes)),
        "largest_client": float(sizes.max()),
        "labels_per_client": float((counts > 0).sum(1).mean()),
        "label_distance": float(0.5 * np.abs(own - overall).sum(1).mean()),
    }


def figure_class() -> Any:
    """Return matplotlib's ``Figure``; raise InvalidInput if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInput("Figures need matplotlib: pip install 'fedtaco[plot]'.") from error
    return Figure


def draw_labels(counts: LabelCounts, groups: Sequence[str] | None, title: str, path: Path) -> None:
    """Draw which client holds which labels: a heat map with one row per client and one column per label.

    Parameters
    ----------
    counts
        Number of samples, one row per client and one column per label.
    groups
        Group of each client, by which rows are sorted; ``None`` if there are no groups.
    title
        Title of the figure.
    path
        File to write; its suffix determines the format.

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    clients, classes = counts.shape
    order = sorted(range(clients), key=lambda client: (groups[client] if groups else "", client))
    size = min(14, 4 + 0.3 * classes), min(12, 1.5 + 0.25 * clients)
    figure = figure_class()(figsize=size, layout="constrained")
    heat, bars = figure.subplots(1, 2, width_ratios=(3, 1), sharey=True)
    image = heat.imshow(counts[order], aspect="auto", cmap="Blues", interpolation="nearest")
    heat.set(xlabel="label", ylabel="client", title=title)
    if clients <= 40:
        names = [f"{groups[client]} {client}" if groups else str(client) for client in order]
        heat.set_yticks(range(clients), names)
    if classes <= 20:
        heat.set_xticks(range(classes))
    bars.barh(range(clients), counts[order].sum(1), color="#4878a8")
    bars.set(xlabel="samples")
    figure.colorbar(image, ax=heat, label="samples", location="left", pad=0.02)
    figure.savefig(path, dpi=120)
