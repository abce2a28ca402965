"""The paper's synthetic label groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedtaco.data.partitions.base import Indices, Labels, Partition
from fedtaco.errors import InvalidInput

GROUP_NAMES = ("A", "B", "C")
GROUP_CLIENTS = (0.35, 0.35, 0.30)
GROUP_LABELS = (0.1, 0.2, 0.5)
"""Which part of the labels a client of each group holds."""


def label_groups(labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
    """The paper's groups A, B, C: clients with about 10 %, 20 % and 50 % of the labels.

    A label nobody drew takes the place of one that several hold, so that every class is covered. A
    class is split over its owners in inverse proportion to how many labels each owner holds, so that
    clients hold similar amounts. On two classes, where no client can hold 10 % of them, A holds one
    label, B both at 90 to 10, and C both evenly.
    """
    groups = _assign_groups(clients, rng)
    classes, counts = np.unique(labels, return_counts=True)
    two = len(classes) == 2
    affinity = _two_class_affinity(groups, counts) if two else _label_affinity(groups, len(classes), rng)
    return Partition(_split_by_affinity(labels, classes, affinity, rng), groups)


def _assign_groups(clients: int, rng: np.random.Generator) -> list[str]:
    bounds = np.round(np.cumsum(GROUP_CLIENTS) * clients).astype(int)
    names = np.repeat(GROUP_NAMES, np.diff(bounds, prepend=0))
    return [str(name) for name in rng.permutation(names)]


def _label_affinity(groups: list[str], classes: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    held = {name: max(1, round(part * classes)) for name, part in zip(GROUP_NAMES, GROUP_LABELS, strict=True)}
    slots = sum(held[group] for group in groups)
    if slots < classes:
        raise InvalidInput(
            f"clients is {len(groups)}: in groups they hold {slots} labels together, fewer than the "
            f"{classes} there are. Use more clients or another partition."
        )
    drawn = [rng.permutation(classes)[: held[group]] for group in groups]
    owners = np.bincount(np.concatenate(drawn), minlength=classes)
    for missing in np.flatnonzero(owners == 0):
        spare = [(client, slot) for client, own in enumerate(drawn) for slot in np.flatnonzero(owners[own] > 1)]
        client, slot = spare[rng.integers(len(spare))]
        owners[drawn[client][slot]] -= 1
        owners[missing] = 1
        drawn[client][slot] = missing
    affinity = np.zeros((len(groups), classes))
    for client, own in enumerate(drawn):
        affinity[client, own] = 1 / len(own)
    return affinity


def _two_class_affinity(groups: list[str], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Clients favour the two classes as often as these occur; their sizes are such that all samples are used."""
    majority = np.array([{"A": 1.0, "B": 0.9, "C": 0.5}[group] for group in groups])
    quota = np.arange(len(groups) + 1) * counts[1] / counts.sum()
    favours_second = np.empty(len(groups), dtype=bool)
    favours_second[np.argsort(groups, kind="stable")] = np.diff(np.floor(quota + 0.5)) > 0
    mixture = np.where(favours_second[:, None] == np.array([False, True]), majority[:, None], 1 - majority[:, None])
    by_favourite = np.stack([mixture[~favours_second].sum(0), mixture[favours_second].sum(0)], axis=1)
    sizes: npt.NDArray[np.float64] = np.linalg.lstsq(by_favourite, counts.astype(float))[0]
    if not np.allclose(by_favourite @ sizes, counts) or sizes.min() <= 0:
        raise InvalidInput(
            f"Two classes of {counts[0]} and {counts[1]} samples cannot be split into groups over {len(groups)} "
            "clients with whole, 90/10 and 50/50 mixtures; use more clients or another partition."
        )
    scaled: npt.NDArray[np.float64] = mixture * sizes[favours_second.astype(int)][:, None]
    return scaled


def _split_by_affinity(
    labels: Labels, classes: Labels, affinity: npt.NDArray[np.float64], rng: np.random.Generator
) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in affinity]
    for column, label in enumerate(classes):
        samples = rng.permutation(np.flatnonzero(labels == label))
        shares = np.cumsum(affinity[:, column]) / affinity[:, column].sum()
        cuts = np.round(shares * len(samples)).astype(int)[:-1]
        for client, piece in enumerate(np.split(samples, cuts)):
            parts[client].append(piece)
    return [np.concatenate(pieces) for pieces in parts]
