"""Records: what a run writes and reads back, as plain data."""

from fedtaco.records.checkpoint import Arrays
from fedtaco.records.evaluations import ClientEvaluation
from fedtaco.records.history import (
    MISSED_DEADLINE,
    NO_ANSWER,
    ClientRecord,
    Decision,
    History,
    RoundRecord,
    finite_or_none,
)
from fedtaco.records.partition import PartitionRecord
from fedtaco.records.quantities import QUANTITIES, Quantity
from fedtaco.records.run_folder import RunFolder

__all__ = [
    "MISSED_DEADLINE",
    "NO_ANSWER",
    "QUANTITIES",
    "Arrays",
    "ClientEvaluation",
    "ClientRecord",
    "Decision",
    "History",
    "PartitionRecord",
    "Quantity",
    "RoundRecord",
    "RunFolder",
    "finite_or_none",
]
