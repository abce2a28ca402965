"""The result of a partition, and the array types that all partitions use."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
Users = npt.NDArray[np.int32]
"""User to whom each sample belongs."""


@dataclass(frozen=True)
class Partition:
    """The assignment of samples to clients.

    Attributes
    ----------
    indices : list of arrays
        Indices of each client's samples.
    groups : list of str, optional
        Group of each client, if the partition has groups.
    notes : list of str
        Messages for the user, such as a deviation from the requested partition.
    noise : list of float, optional
        Standard deviation of the Gaussian noise on the inputs of each client, if the partition has noise.
    """

    indices: list[Indices]
    groups: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    noise: list[float] | None = None


def label_counts(labels: Labels, parts: Sequence[Indices], classes: int) -> npt.NDArray[np.int64]:
    """Count the samples of each class that each client holds.

    Parameters
    ----------
    labels : array
        Class labels of all samples.
    parts : sequence of arrays
        Indices of each client's samples.
    classes : int
        Number of classes.

    Returns
    -------
    array
        Counts, one row per client and one column per class.

    Examples
    --------
    >>> label_counts(np.array([0, 1, 1, 2]), [np.array([0, 1]), np.array([2, 3])], classes=3)
    array([[1, 1, 0],
           [0, 1, 1]])
    """
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])
