"""Check that the records of a run are complete and in order."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from fedtaco.records.history import ClientRecord, RoundRecord


def check_rounds(rows: Iterable[dict[str, Any]], limit: int) -> Iterator[RoundRecord]:
    """Yield the records of rounds, each of which must occur once, in order, and at most ``limit`` of them.

    >>> list(check_rounds([], limit=3))
    []
    """
    for number, row in enumerate(rows, start=1):
        record = RoundRecord.from_row(row)
        if record.round != number or number > limit:
            raise ValueError(f"line {number} is the record of round {record.round} of {limit}")
        yield record


def check_cohorts(
    rows: Iterable[dict[str, Any]], rounds: Sequence[RoundRecord], clients: int
) -> Iterator[ClientRecord]:
    """Yield the records of clients, which must be those of the cohort of each round, in order.

    Parameters
    ----------
    rows
        The lines of ``clients.jsonl``.
    rounds
        All rounds, with the sizes of their cohorts.
    clients
        Number of clients in the run.
    """
    records = map(ClientRecord.from_row, rows)
    for number, size in enumerate((record.cohort for record in rounds), start=1):
        seen: set[int] = set()
        for record in islice(records, size):
            if record.round != number or record.client in seen or not 0 <= record.client < clients:
                raise ValueError(f"the record of client {record.client} in round {record.round} is out of place")
            seen.add(record.client)
            yield record
        if len(seen) != size:
            raise ValueError(f"it contains {len(seen)} of the {size} clients of round {number}")
    if next(records, None) is not None:
        raise ValueError(f"it contains records of more than {len(rounds)} rounds")
