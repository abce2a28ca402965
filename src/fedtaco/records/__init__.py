"""Records: what a run writes and reads back, as plain data."""

from fedtaco.records.folder import Arrays, RunFolder
from fedtaco.records.history import ClientRecord, History, RoundRecord

__all__ = ["Arrays", "ClientRecord", "History", "RoundRecord", "RunFolder"]
