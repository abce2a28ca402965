"""Trust: which uploads are taken, and which clients stay."""

from fedtaco.trust.detector import DETECTORS, Detector, PaperDetector
from fedtaco.trust.screen import finite_rows

__all__ = ["DETECTORS", "Detector", "PaperDetector", "finite_rows"]
