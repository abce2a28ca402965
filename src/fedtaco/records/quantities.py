"""The quantities that are measured for each client in each round, declared in this one place.

Records, run folders, and the heat maps and menu of the report use these lists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal


@dataclass(frozen=True)
class Quantity:
    """A number that is recorded for each upload, or a diagnosed one."""

    name: str
    """Key in ``clients.jsonl`` or in the report's data."""
    symbol: str
    """Short name, for tooltips."""
    title: str
    """Entry in the report's menu."""
    measure: Callable[[Any], Any]
    """Function of a :class:`~fedtaco.run_state.RoundOutcome` that returns a tensor with one number per upload, or
    ``None`` if nothing is known.

    A number that is not finite is recorded as ``None``. For a diagnosed quantity, a function of a
    :class:`~fedtaco.records.ClientDiagnostics` that returns one number or ``None``.
    """
    unused: float | None = None
    """Value for a client whose upload was not used."""
    scale: Literal["run", "all-runs", "signed", "around-one"] = "run"
    """Colour scale of the heat map: from 0 to the highest value of the run, of all runs, from -1 to 1, or from 0 to 2
    with 1 in the middle."""
    note: str = ""
    """How to read the heat map, in a few sentences."""


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("alpha", "α", "α, TACO's coefficient", attrgetter("uploads.geometry.alpha"), scale="all-runs"),
    Quantity("cosine", "cosine", "cosine with the mean upload", attrgetter("uploads.geometry.cosines"), scale="signed"),
    Quantity("norm", "norm", "norm of the upload", attrgetter("uploads.geometry.norms")),
    Quantity("weight", "weight", "weight in the aggregate", attrgetter("uploads.aggregation_weights"), unused=0.0),
    Quantity("training_loss", "training loss", "training loss", attrgetter("uploads.training_losses")),
    Quantity("side", "side", "side in the largest disagreement", attrgetter("sides"), scale="signed"),
)
"""Every quantity of uploads, in the order of the report's menu."""
DIAGNOSED: tuple[Quantity, ...] = (
    Quantity(
        "over_correction",
        "index",
        "over-correction index",
        attrgetter("bounded_over_correction"),
        scale="around-one",
        note=(
            "Step along the correction over the step that is best for the global loss. Blue: a longer step would be "
            "better. Red: a shorter one; 2 stands for 2 or more, and for a correction that leads uphill. Also empty: "
            "no correction, or no best step."
        ),
    ),
    Quantity(
        "correction_ratio",
        "ratio",
        "correction relative to own gradients",
        attrgetter("correction_ratio"),
        note="Length of a client's move by its correction over that of its move by its own gradients.",
    ),
    Quantity(
        "gradient_cosine",
        "c",
        "c, cosine with the global gradient",
        attrgetter("gradient_cosine"),
        scale="signed",
        note="Below 0, the client violates Assumption 2.",
    ),
    Quantity(
        "drift",
        "drift",
        "drift from the mean client model",
        attrgetter("drift"),
        note="Distance of a client's model after its steps from the mean of those of all clients.",
    ),
)
"""Quantities of diagnosed runs, which follow in the report's menu if there are any."""
