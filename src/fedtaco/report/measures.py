"""The measures whose curves the report draws, declared in this one place."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A number that is recorded for each round."""

    name: str
    """Field of :class:`~fedtaco.records.RoundRecord`."""
    title: str
    """Name in menus and on axes."""
    is_accuracy: bool = False
    """Whether it is shown in percent."""
    has_target: bool = False
    """Whether the target is shown with it."""
    is_loss: bool = False
    """Whether it is drawn on a logarithmic axis if it varies much."""


MEASURES = (
    Measure("accuracy", "test accuracy", is_accuracy=True, has_target=True),
    Measure("loss", "test loss", is_loss=True),
    Measure("balanced_accuracy", "balanced accuracy", is_accuracy=True),
    Measure("training_loss", "training loss", is_loss=True),
    Measure("validation_accuracy", "held-out accuracy", is_accuracy=True, has_target=True),
    Measure("validation_loss", "held-out loss", is_loss=True),
    Measure("gain", "gain Γ of the largest disagreement"),
)
"""Every measure that all runs may have, in the order of the report's menus."""


def own_measure(metric: str) -> Measure:
    """Return the measure of an own metric, whose name is in the records' ``metrics``."""
    return Measure(f"metrics/{metric}", metric)
