"""Diagnostics: the quantities of the paper's analysis, and how far corrections go (docs/theory.md)."""

from fedtaco.diagnostics.diagnoser import Diagnoser, Training
from fedtaco.diagnostics.over_correction import over_correction

__all__ = ["Diagnoser", "Training", "over_correction"]
