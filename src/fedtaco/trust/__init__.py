"""Trust: which uploads are taken, which clients stay, and how clients may misbehave."""

from fedtaco.trust.behaviours import Behaviour, Misfits, choose_clients
from fedtaco.trust.detector import Case, Detector, PaperDetector, Verdict, clean_record
from fedtaco.trust.guard import Guard
from fedtaco.trust.screen import finite_rows

DETECTORS: dict[str, type[PaperDetector] | type[Guard] | None] = {"off": None, "paper": PaperDetector, "guard": Guard}
"""Every detector by name."""

__all__ = [
    "DETECTORS",
    "Behaviour",
    "Case",
    "Detector",
    "Guard",
    "Misfits",
    "PaperDetector",
    "Verdict",
    "choose_clients",
    "clean_record",
    "finite_rows",
]
