"""Clients over rounds as a picture of bounded size: averaged line by line, however long the records are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Line = Mapping[str, Any]
Grid = list[list[float | None]]

QUANTITIES = ("alpha", "cosine", "norm", "weight")
BLOCK = 20_000
"""Lines that are held at a time."""


@dataclass(frozen=True)
class Rows:
    """Clients in the order in which they are drawn, by group; several share a row where there are too many.

    >>> Rows.of(["B", "A", "A"], 3, limit=10).names
    ['A 1', 'A 2', 'B 0']
    >>> Rows.of(None, 4, limit=2).names
    ['0–1', '2–3']
    """

    of_client: Integers
    names: list[str]
    groups: list[tuple[str, int, int]]
    """Name, number of rows and number of clients of each group, from the first row on."""

    @classmethod
    def of(cls, groups: Sequence[str] | None, clients: int, limit: int) -> Rows:
        members = _members(groups, clients, limit)
        together = 1 if clients <= limit else math.ceil(clients / (limit - len(members) + 1))
        of_client = np.empty(clients, dtype=np.int64)
        names: list[str] = []
        spans = []
        for group, own in members.items():
            chunks = [own[start : start + together] for start in range(0, len(own), together)]
            for chunk in chunks:
                of_client[chunk] = len(names)
                names.append(f"{group} {_range_name(chunk[0], chunk[-1])}".strip())
            spans.append((group, len(chunks), len(own)))
        return cls(of_client, names, spans if groups and len(members) > 1 else [])

    def __len__(self) -> int:
        return len(self.names)

    def mean(self, counts: Integers) -> Floats:
        """The mean over each row's clients, of one line a client."""
        sums = np.zeros((len(self), counts.shape[1]))
        np.add.at(sums, self.of_client, counts)
        own: Floats = sums / np.bincount(self.of_client, minlength=len(self))[:, None]
        return own


def _members(groups: Sequence[str] | None, clients: int, limit: int) -> dict[str, list[int]]:
    """The clients of each group; all in one where groups are too many to be told apart in ``limit`` rows."""
    if not groups or len(set(groups)) > limit // 2:
        return {"": list(range(clients))}
    members: dict[str, list[int]] = {group: [] for group in sorted(set(groups))}
    for client, group in enumerate(groups):
        members[group].append(client)
    return members


@dataclass(frozen=True)
class Columns:
    """Consecutive things in at most ``limit`` columns of the same width.

    >>> Columns(10, limit=4).names(first=1)
    ['1–3', '4–6', '7–9', '10']
    """

    things: int
    limit: int

    @property
    def width(self) -> int:
        return max(1, math.ceil(self.things / self.limit))

    @property
    def starts(self) -> range:
        return range(0, self.things, self.width)

    def names(self, first: int) -> list[str]:
        last = self.things - 1
        return [_range_name(first + start, first + min(start + self.width - 1, last)) for start in self.starts]


def _range_name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


class HeatMap:
    """Means of each quantity over the clients of a row and the rounds of a column, and who was expelled."""

    def __init__(self, rows: Rows, columns: Columns) -> None:
        self.rows, self.columns = rows, columns
        self._shape = len(rows), len(columns.starts)
        self._cells = np.zeros((len(QUANTITIES), 2, self._shape[0] * self._shape[1]))
        self._alpha = np.zeros((2, len(rows.of_client)))
        self.expelled: dict[int, Line] = {}
        """The line in which each expelled client was first marked so."""

    def fill(self, lines: Iterable[Line], tell: Callable[[int], None]) -> None:
        """Take in the lines of all rounds that were finished; ``tell`` hears the newest round."""
        for block in _blocks(lines):
            finished = [line for line in block if line["round"] <= self.columns.things]
            if finished:
                self._add(finished)
                tell(finished[-1]["round"])

    def _add(self, block: list[Line]) -> None:
        clients = np.array([line["client"] for line in block], dtype=np.int64)
        rounds = np.array([line["round"] for line in block], dtype=np.int64)
        cells = self.rows.of_client[clients] * self._shape[1] + (rounds - 1) // self.columns.width
        for quantity, tally in zip(QUANTITIES, self._cells, strict=True):
            values = np.array([line[quantity] for line in block], dtype=np.float64)
            _count(tally, cells, values)
            if quantity == "alpha":
                _count(self._alpha, clients, values)
        for line in block:
            if line["expelled"]:
                self.expelled.setdefault(line["client"], line)

    def grids(self) -> dict[str, Grid]:
        """A number a cell and quantity; ``None`` where no client of the row took part."""
        with np.errstate(invalid="ignore"):
            means = (self._cells[:, 0] / self._cells[:, 1]).reshape(len(QUANTITIES), *self._shape)
        return {quantity: rounded(grid) for quantity, grid in zip(QUANTITIES, means, strict=True)}

    def mean_alpha(self, kinds: Sequence[str]) -> dict[str, float]:
        """Mean α over rounds and the clients of each kind."""
        names, places = np.unique(kinds, return_inverse=True)
        totals, counts = (np.bincount(places, own) for own in self._alpha)
        return {str(name): float(t / n) for name, t, n in zip(names, totals, counts, strict=True) if n}


def _count(tally: Floats, places: Integers, values: Floats) -> None:
    """Add values, and how many they are, at their places; what is not a number is left out."""
    known = np.isfinite(values)
    tally[0] += np.bincount(places[known], values[known], minlength=tally.shape[1])
    tally[1] += np.bincount(places[known], minlength=tally.shape[1])


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    source = iter(lines)
    while block := list(islice(source, BLOCK)):
        yield block


def rounded(table: Floats) -> Grid:
    """To four significant digits; ``None`` for what is not a number.

    >>> rounded(np.array([[1.23456, np.nan]]))
    [[1.235, None]]
    """
    return [[float(f"{value:.4g}") if math.isfinite(value) else None for value in row] for row in table.tolist()]
