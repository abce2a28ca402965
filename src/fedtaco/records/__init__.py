"""Records: what a run writes and reads back, as plain data."""

from fedtaco.records.checkpoint import Arrays
from fedtaco.records.folder import RunFolder, Split
from fedtaco.records.history import ClientRecord, Decision, History, RoundRecord

__all__ = ["Arrays", "ClientRecord", "Decision", "History", "RoundRecord", "RunFolder", "Split"]
