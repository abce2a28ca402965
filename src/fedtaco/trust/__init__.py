"""Trust: which uploads are used, which clients stay, and how simulated clients misbehave."""

from fedtaco.registry import Registry
from fedtaco.trust.adversaries import NO_ADVERSARIES, AdversarialClients, choose_clients
from fedtaco.trust.base import Detector, DetectorInput, Off, Verdict
from fedtaco.trust.behaviours import BEHAVIOURS, Behaviour, parse_behaviour
from fedtaco.trust.guard import Guard
from fedtaco.trust.paper import PaperDetector
from fedtaco.trust.screen import finite_rows

DETECTORS: Registry[Detector] = Registry(Detector, [Off, PaperDetector, Guard])
"""Every registered detector by name."""

__all__ = [
    "BEHAVIOURS",
    "DETECTORS",
    "NO_ADVERSARIES",
    "AdversarialClients",
    "Behaviour",
    "Detector",
    "DetectorInput",
    "Guard",
    "Off",
    "PaperDetector",
    "Verdict",
    "choose_clients",
    "finite_rows",
    "parse_behaviour",
]
