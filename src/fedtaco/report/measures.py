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
    """Whether it is shown in percent, together with the target."""


MEASURES = (
    Measure("accuracy", "test accuracy", is_accuracy=True),
    Measure("loss", "test loss"),
    Measure("validation_accuracy", "held-out accuracy", is_accuracy=True),
    Measure("validation_loss", "held-out loss"),
    Measure("gain", "gain Γ of the largest disagreement"),
)
"""Every measure, in the order of the report's menus."""
