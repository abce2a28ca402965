"""The label groups of the TACO paper."""

import numpy as np
import numpy.typing as npt

from fedtaco.data.partitions.base import Indices, Labels, Partition
from fedtaco.errors import InvalidInput

Affinity = npt.NDArray[np.float64]
"""Relative share of each class that each client gets, (clients, classes)."""
CLIENT_FRACTIONS = {"A": 0.35, "B": 0.35, "C": 0.30}
"""Fraction of the clients that belong to each group."""
LABEL_FRACTIONS = {"A": 0.1, "B": 0.2, "C": 0.5}
"""Fraction of the labels that a client of each group holds."""
MAJORITY_SHARES = {"A": 1.0, "B": 0.9, "C": 0.5}
"""With two classes, the share of a client's samples that belong to its main class."""


def label_groups(labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
    """Assign clients to the paper's groups A, B and C, whose clients hold 10 %, 20 % and 50 % of the labels.

    The labels of a client are drawn at random; a label that nobody drew replaces one that several clients
    hold, so that every class is assigned. A class is split over its owners in inverse proportion to the number
    of labels that each owner holds, so that clients hold similar numbers of samples. With two classes, a client
    of group A holds one class, one of group B holds both in the ratio 90 to 10, and one of group C both evenly.
    """
    groups = _assign_groups(clients, rng)
    classes, counts = np.unique(labels, return_counts=True)
    two = len(classes) == 2
    affinity = _two_class_affinity(groups, counts) if two else _label_affinity(groups, len(classes), rng)
    return Partition(_split_by_affinity(labels, classes, affinity, rng), groups)


def _assign_groups(clients: int, rng: np.random.Generator) -> list[str]:
    bounds = np.round(np.cumsum(list(CLIENT_FRACTIONS.values())) * clients).astype(int)
    names = np.repeat(list(CLIENT_FRACTIONS), np.diff(bounds, prepend=0))
    return [str(name) for name in rng.permutation(names)]


def _label_affinity(groups: list[str], classes: int, rng: np.random.Generator) -> Affinity:
    """Draw the labels of each client at random; the affinity to each is 1 / (number of labels of the client)."""
    held = {name: max(1, round(part * classes)) for name, part in LABEL_FRACTIONS.items()}
    slots = sum(held[group] for group in groups)
    if slots < classes:
        raise InvalidInput(
            f"clients is {len(groups)}: in groups they hold {slots} labels in total, fewer than the {classes} classes. "
            "Use more clients or another partition."
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


def _two_class_affinity(groups: list[str], counts: npt.NDArray[np.int64]) -> Affinity:
    """Choose the main class and the number of samples of each client.

    The fraction of clients whose main class is the second one is, up to rounding, the fraction of samples of that
    class. The numbers of samples are chosen such that all samples are used.
    """
    majority = np.array([MAJORITY_SHARES[group] for group in groups])
    quota = np.arange(len(groups) + 1) * counts[1] / counts.sum()
    second_is_main = np.empty(len(groups), dtype=bool)
    second_is_main[np.argsort(groups, kind="stable")] = np.diff(np.floor(quota + 0.5)) > 0
    mixture = np.where(second_is_main[:, None] == np.array([False, True]), majority[:, None], 1 - majority[:, None])
    by_main_class = np.stack([mixture[~second_is_main].sum(0), mixture[second_is_main].sum(0)], axis=1)
    sizes: npt.NDArray[np.float64] = np.linalg.lstsq(by_main_class, counts.astype(float))[0]
    if not np.allclose(by_main_class @ sizes, counts) or sizes.min() <= 0:
        raise InvalidInput(
            f"Two classes of {counts[0]} and {counts[1]} samples cannot be split into groups over {len(groups)} "
            "clients with 100/0, 90/10 and 50/50 mixtures; use more clients or another partition."
        )
    affinity: Affinity = mixture * sizes[second_is_main.astype(int)][:, None]
    return affinity


def _split_by_affinity(labels: Labels, classes: Labels, affinity: Affinity, rng: np.random.Generator) -> list[Indices]:
    """Split each class over the clients in proportion to its column of ``affinity``."""
    pieces = []
    for column, label in enumerate(classes):
        samples = rng.permutation(np.flatnonzero(labels == label))
        shares = np.cumsum(affinity[:, column]) / affinity[:, column].sum()
        pieces.append(np.split(samples, np.round(shares * len(samples)).astype(int)[:-1]))
    return [np.concatenate(own) for own in zip(*pieces, strict=True)]
