"""The contracts that every method, detector and codec must fulfil, whether registered or a user's own.

``check_method(MyMethod())``, ``check_detector(MyDetector())`` and ``check_codec(MyCodec())`` run all checks and raise
an ``AssertionError`` that explains the first one that fails.
"""

from fedtaco.testing.codec_contract import CODEC_CONTRACT, check_codec
from fedtaco.testing.detector_contract import DETECTOR_CONTRACT, check_detector
from fedtaco.testing.method_contract import METHOD_CONTRACT, check_method
from fedtaco.testing.small_federation import CLIENTS, LOCAL_LR, STEPS, final_state, make_federation

__all__ = [
    "CLIENTS",
    "CODEC_CONTRACT",
    "DETECTOR_CONTRACT",
    "LOCAL_LR",
    "METHOD_CONTRACT",
    "STEPS",
    "check_codec",
    "check_detector",
    "check_method",
    "final_state",
    "make_federation",
]
