"""Who holds which labels: figures and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.errors import InvalidInput

Counts = npt.NDArray[np.int64]


def label_counts(labels: npt.NDArray[np.int64], parts: Sequence[npt.NDArray[np.int64]], classes: int) -> Counts:
    """How many samples of each class each client holds, (clients, classes)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def heterogeneity(counts: Counts) -> dict[str, float]:
    """How unlike the clients are.

    ``label_distance`` is the mean total variation between a client's label distribution and the
    overall one: 0 for IID, near 1 when clients share no labels.

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


def matplotlib_figure() -> Any:
    """What pictures are drawn on."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInput("Pictures need matplotlib: pip install 'fedtaco[plot]'.") from error
    return Figure


def draw_labels(counts: Counts, groups: Sequence[str] | None, title: str, path: Path) -> None:
    """A row a client, a column a label, the darker the more samples; sizes as bars beside it."""
    figure_class = matplotlib_figure()
    clients, classes = counts.shape
    order = sorted(range(clients), key=lambda client: (groups[client] if groups else "", client))
    figure = figure_class(figsize=(min(14, 4 + 0.3 * classes), min(12, 1.5 + 0.25 * clients)), layout="constrained")
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
