"""Records: what a run writes and reads back, as plain data."""

from fedtaco.records.checkpoint import Arrays
from fedtaco.records.diagnostics import ClientDiagnostics, Diagnostics, RoundDiagnostics
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
from fedtaco.records.quantities import DIAGNOSED, QUANTITIES, Quantity
from fedtaco.records.run_folder import RunFolder

__all__ = [
    "DIAGNOSED",
    "MISSED_DEADLINE",
    "NO_ANSWER",
    "QUANTITIES",
    "Arrays",
    "ClientDiagnostics",
    "ClientEvaluation",
    "ClientRecord",
    "Decision",
    "Diagnostics",
    "History",
    "PartitionRecord",
    "Quantity",
    "RoundDiagnostics",
    "RoundRecord",
    "RunFolder",
    "finite_or_none",
]
