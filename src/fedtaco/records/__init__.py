"""Records: what a run writes and reads back, as plain data."""

from fedtaco.records.checkpoint import Arrays
from fedtaco.records.history import ClientRecord, Decision, History, RoundRecord
from fedtaco.records.partition import PartitionRecord
from fedtaco.records.quantities import QUANTITIES, Quantity
from fedtaco.records.run_folder import RunFolder

__all__ = [
    "QUANTITIES",
    "Arrays",
    "ClientRecord",
    "Decision",
    "History",
    "PartitionRecord",
    "Quantity",
    "RoundRecord",
    "RunFolder",
]
