"""The contract that every method is held to, registered ones and a user's own alike.

``check_method(MyMethod())`` runs every check and raises ``AssertionError`` with a sentence at the
first one that fails.
"""

from fedtaco.testing.contract import CONTRACT, check_method
from fedtaco.testing.small import CLIENTS, LOCAL_LR, STEPS, final_state, make_federation

__all__ = ["CLIENTS", "CONTRACT", "LOCAL_LR", "STEPS", "check_method", "final_state", "make_federation"]
