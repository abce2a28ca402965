"""The logger of the server side, a child of Flower's, so that its lines appear in the log of the run."""

from logging import LogRecord, getLogger

from fedtaco.printable import printable

MAX_ARGUMENT = 1000
"""Maximum number of characters of a text in a log line."""


def make_printable(record: LogRecord) -> bool:
    """Make the texts in a log line printable: some of them come from nodes and from run folders."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            one if isinstance(one, int | float) else printable(one, MAX_ARGUMENT) for one in record.args
        )
    return True


log = getLogger("flwr.fedtaco")
log.addFilter(make_printable)
