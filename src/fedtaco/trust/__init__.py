"""Trust: detectors, which drop uploads and expel clients, and behaviours of simulated adversaries."""

from fedtaco.registry import Registry
from fedtaco.trust.adversaries import NO_ADVERSARIES, AdversarialClients, choose_clients
from fedtaco.trust.behaviours import BEHAVIOURS, Behaviour, ClientView, Freeloader, parse_behaviour
from fedtaco.trust.detector import Detector, DetectorInput, NormDetector, Off, Verdict
from fedtaco.trust.guard import Guard
from fedtaco.trust.paper_detector import PaperDetector

DETECTORS: Registry[Detector] = Registry(Detector, [Off, NormDetector, PaperDetector, Guard])
"""Every registered detector by name."""

__all__ = [
    "BEHAVIOURS",
    "DETECTORS",
    "NO_ADVERSARIES",
    "AdversarialClients",
    "Behaviour",
    "ClientView",
    "Detector",
    "DetectorInput",
    "Freeloader",
    "Guard",
    "NormDetector",
    "Off",
    "PaperDetector",
    "Verdict",
    "choose_clients",
    "parse_behaviour",
]
