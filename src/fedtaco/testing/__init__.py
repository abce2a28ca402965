"""The contracts that every method and detector must keep, registered ones and users' own alike.

``check_method(MyMethod())`` and ``check_detector(MyDetector())`` run every check and raise
``AssertionError`` with a sentence at the first one that fails.
"""

from fedtaco.testing.detector_contract import DETECTOR_CONTRACT, check_detector
from fedtaco.testing.method_contract import METHOD_CONTRACT, check_method
from fedtaco.testing.small import CLIENTS, LOCAL_LR, STEPS, final_state, make_simulator

__all__ = [
    "CLIENTS",
    "DETECTOR_CONTRACT",
    "LOCAL_LR",
    "METHOD_CONTRACT",
    "STEPS",
    "check_detector",
    "check_method",
    "final_state",
    "make_simulator",
]
