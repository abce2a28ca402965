"""Heat maps of clients over rounds; records are averaged into a bounded number of cells as they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.records import DIAGNOSED, QUANTITIES, Diagnostics

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
ClientRow = Mapping[str, Any]
"""A line of ``clients.jsonl``."""

BLOCK = 20_000
"""Number of lines of ``clients.jsonl`` held in memory at a time."""


@dataclass(frozen=True)
class RowBins:
    """Rows of a heat map: clients sorted by group; if there are too many, several clients share a row.

    >>> RowBins.of(["B", "A", "A"], 3, limit=10).names
    ['A 1', 'A 2', 'B 0']
    >>> RowBins.of(None, 4, limit=2).names
    ['0–1', '2–3']
    """

    of_client: Integers
    """Row of each client."""
    names: list[str]
    groups: list[tuple[str, int, int]]
    """Name, number of rows and number of clients of each group, from the top."""

    @classmethod
    def of(cls, groups: Sequence[str] | None, clients: int, limit: int) -> RowBins:
        """Assign clients to at most ``limit`` rows; no row mixes two groups."""
        members = _members(groups, clients, limit)
        clients_per_row = 1 if clients <= limit else math.ceil(clients / (limit - len(members) + 1))
        of_client = np.empty(clients, dtype=np.int64)
        names: list[str] = []
        spans = []
        for group, own in members.items():
            chunks = [own[start : start + clients_per_row] for start in range(0, len(own), clients_per_row)]
            for chunk in chunks:
                of_client[chunk] = len(names)
                names.append(f"{group} {_range_name(chunk[0], chunk[-1])}".strip())
            spans.append((group, len(chunks), len(own)))
        return cls(of_client, names, spans if groups and len(members) > 1 else [])

    def __len__(self) -> int:
        return len(self.names)

    def average(self, counts: Integers) -> Floats:
        """Return the mean of ``counts``, which has one row per client, over the clients of each row of the heat map."""
        sums = np.zeros((len(self), counts.shape[1]))
        np.add.at(sums, self.of_client, counts)
        means: Floats = sums / np.bincount(self.of_client, minlength=len(self))[:, None]
        return means


def _members(groups: Sequence[str] | None, clients: int, limit: int) -> dict[str, list[int]]:
    """Return the clients of each group; with too many groups to separate in ``limit`` rows, return a single group."""
    if not groups or len(set(groups)) > limit // 2:
        return {"": list(range(clients))}
    names = np.array(groups)
    return {group: np.flatnonzero(names == group).tolist() for group in sorted(set(groups))}


@dataclass(frozen=True)
class ColumnBins:
    """Columns of a heat map: consecutive rounds or labels in at most ``limit`` columns of equal width.

    >>> ColumnBins(10, limit=4).names(first=1)
    ['1–3', '4–6', '7–9', '10']
    """

    size: int
    """Number of rounds or labels."""
    limit: int

    @property
    def width(self) -> int:
        """Number of rounds or labels per column."""
        return max(1, math.ceil(self.size / self.limit))

    @property
    def starts(self) -> range:
        """Index of the first round or label of each column."""
        return range(0, self.size, self.width)

    def names(self, first: int) -> list[str]:
        """Return the names of the columns if the first round or label has the number ``first``."""
        last = self.size - 1
        return [_range_name(first + start, first + min(start + self.width - 1, last)) for start in self.starts]


def _range_name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


class HeatMap:
    """Mean of every quantity over the clients of a row and the rounds of a column.

    Parameters
    ----------
    rows
        The row of each client.
    columns
        The columns of all finished rounds.
    """

    def __init__(self, rows: RowBins, columns: ColumnBins) -> None:
        self.rows, self.columns = rows, columns
        self._shape = len(rows), len(columns.starts)
        names = [quantity.name for quantity in (*QUANTITIES, *DIAGNOSED)]
        self._cells = {name: np.zeros((2, self._shape[0] * self._shape[1])) for name in names}
        self._alpha = np.zeros((2, len(rows.of_client)))
        self.expelled: dict[int, ClientRow] = {}
        """For each expelled client, the first record that marks it as expelled."""

    def fill(self, lines: Iterable[ClientRow], on_progress: Callable[[int], None]) -> None:
        """Add the records of all finished rounds; call ``on_progress`` with the latest round after every block."""
        source = iter(lines)
        while block := list(islice(source, BLOCK)):
            self._add(block)
            on_progress(block[-1]["round"])

    def _add(self, block: list[ClientRow]) -> None:
        clients = np.array([line["client"] for line in block], dtype=np.int64)
        rounds = np.array([line["round"] for line in block], dtype=np.int64)
        cells = self._cells_of(clients, rounds)
        for quantity in QUANTITIES:
            values = np.array([line[quantity.name] for line in block], dtype=np.float64)
            _add_at(self._cells[quantity.name], cells, values)
            if quantity.name == "alpha":
                _add_at(self._alpha, clients, values)
        for line in block:
            if line["expelled"]:
                self.expelled.setdefault(line["client"], line)

    def add_diagnostics(self, diagnostics: Diagnostics) -> None:
        """Add the diagnosed quantities of all finished rounds."""
        for record in diagnostics:
            clients = np.array([one.client for one in record.clients], dtype=np.int64)
            cells = self._cells_of(clients, np.full_like(clients, record.round))
            for quantity in DIAGNOSED:
                values = np.array([quantity.measure(one) for one in record.clients], dtype=np.float64)
                _add_at(self._cells[quantity.name], cells, values)

    def _cells_of(self, clients: Integers, rounds: Integers) -> Integers:
        cells: Integers = self.rows.of_client[clients] * self._shape[1] + (rounds - 1) // self.columns.width
        return cells

    def values(self) -> dict[str, list[list[float | None]]]:
        """Return the means of each quantity, by row and column; ``None`` for cells without any value.

        Diagnosed quantities are omitted if there are no values at all.
        """
        omitted = {quantity.name for quantity in DIAGNOSED if not self._cells[quantity.name][1].any()}
        shown = {name: tally for name, tally in self._cells.items() if name not in omitted}
        with np.errstate(invalid="ignore"):
            return {
                name: [rounded(row) for row in (tally[0] / tally[1]).reshape(self._shape)]
                for name, tally in shown.items()
            }

    def mean_alpha(self, kinds: Sequence[str]) -> dict[str, float]:
        """Return the mean α of each kind of client, over its clients and all rounds."""
        names, indices = np.unique(kinds, return_inverse=True)
        totals, counts = (np.bincount(indices, own) for own in self._alpha)
        return {str(name): float(t / n) for name, t, n in zip(names, totals, counts, strict=True) if n}


def _add_at(tally: Floats, indices: Integers, values: Floats) -> None:
    """Add the finite values to the sums ``tally[0]`` and their number to the counts ``tally[1]``."""
    known = np.isfinite(values)
    tally[0] += np.bincount(indices[known], values[known], minlength=tally.shape[1])
    tally[1] += np.bincount(indices[known], minlength=tally.shape[1])


def rounded(values: Floats) -> list[float | None]:
    """Round to four significant digits; values that are not finite become ``None``.

    >>> rounded(np.array([1.23456, np.nan]))
    [1.235, None]
    """
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values.tolist()]
