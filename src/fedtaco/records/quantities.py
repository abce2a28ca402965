"""The quantities that are measured for each client in each round, declared in this one place.

Records, run folders, and the heat maps and menu of the report use this list.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Quantity:
    """A number that is recorded for each upload."""

    name: str
    """Key in ``clients.jsonl``."""
    symbol: str
    """Short name, for tooltips."""
    title: str
    """Entry in the report's menu."""
    measure: Callable[[Any], Any]
    """Function of the round's :class:`~fedtaco.methods.Uploads` that returns a tensor with one number per upload.

    A number that is not finite is recorded as ``None``.
    """
    unused: float | None = None
    """Value for a client whose upload was not used."""
    scale: Literal["run", "all-runs", "signed"] = "run"
    """Colour scale of the heat map: from 0 to the highest value of the run, of all runs, or from -1 to 1."""


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("alpha", "α", "α, TACO's coefficient", lambda uploads: uploads.geometry.alpha, scale="all-runs"),
    Quantity(
        "cosine", "cosine", "cosine with the mean upload", lambda uploads: uploads.geometry.cosines, scale="signed"
    ),
    Quantity("norm", "norm", "norm of the upload", lambda uploads: uploads.geometry.norms),
    Quantity("weight", "weight", "weight in the aggregate", lambda uploads: uploads.aggregation_weights, unused=0.0),
    Quantity("training_loss", "training loss", "training loss", lambda uploads: uploads.training_losses),
    Quantity("side", "side", "side in the largest disagreement", lambda uploads: uploads.sides, scale="signed"),
)
"""Every quantity, in the order of the report's menu."""
