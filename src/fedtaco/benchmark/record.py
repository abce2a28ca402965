"""The record of a benchmark: all that its page shows, in one small JSON file, without the run folders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

from fedtaco.errors import InvalidInput
from fedtaco.files import reading, replacing, writing
from fedtaco.methods.cost import Cost
from fedtaco.parameters import Domain
from fedtaco.records.documents import STRICT_JSON, read_bounded
from fedtaco.records.schema import read_as
from fedtaco.records.swings import WINDOW, accuracy_range, alternates, range_swings

FORMAT = 2
"""Version of the file."""
DIGITS = 6
"""Digits of the accuracies in the file: enough to tell on which side of the target an accuracy is."""
RUN_DEPTH = 6
"""How deeply a run is nested in the file: tasks, one of them, its entries, one of them, its runs, one of them."""
LAST_ROUNDS = WINDOW
"""Number of rounds, the last ones of a run, over which its figures are computed."""
Accuracy = Annotated[float, Domain("an accuracy", low=0, high=1)]
Values = dict[str, float | str]
"""Values of settings and parameters, by name."""


def first_round_at(target: float, accuracies: Iterable[float | None]) -> int | None:
    """Return the first round whose accuracy is at least ``target``, given that of each round; ``None`` if none is.

    >>> first_round_at(0.7, [0.5, None, 0.8]), first_round_at(0.9, [0.5])
    (3, None)
    """
    return next((number for number, one in enumerate(accuracies, 1) if one is not None and one >= target), None)


@dataclass(frozen=True)
class TuningRunRecord:
    """One run in which a setting was tried."""

    seed: int
    settings: Values
    """The values that were tried."""
    validation_score: Accuracy | None
    """Mean accuracy on held-out samples over the last ten rounds; ``None`` if it diverged."""
    rounds_to_target: int | None
    """First round in which the accuracy on held-out samples is at least the target."""
    stopped: str | None
    """Why the run stopped early, for instance because it diverged."""


@dataclass(frozen=True)
class RunRecord:
    """One run of the evaluation."""

    seed: int
    accuracy: list[Accuracy]
    """After each round, of the global model w on the test set."""
    output_accuracy: Accuracy | None
    """At the end, of the model that the method returns on the test set; ``None`` if that is w."""
    worst_tenth_accuracy: Accuracy | None
    stopped: str | None
    """Why the run stopped early, for instance because it diverged."""

    @property
    def last_accuracies(self) -> list[float]:
        """The accuracies of the last ten rounds; empty if the run diverged."""
        return [] if self.stopped else self.accuracy[-LAST_ROUNDS:]

    @property
    def late_accuracy(self) -> float:
        """Mean accuracy of the last ten rounds, the primary figure; 0 if the run diverged."""
        return fmean(self.last_accuracies) if self.last_accuracies else 0.0

    @property
    def late_range(self) -> float | None:
        """Difference between the highest and the lowest accuracy of the last ten rounds.

        It is ``None`` if the run diverged or has fewer rounds.
        """
        return accuracy_range(self.last_accuracies)

    def rounds_to(self, target: float) -> int | None:
        """Return the first round with an accuracy of at least ``target``; ``None`` if none, or if the run diverged."""
        return None if self.stopped else first_round_at(target, self.accuracy)

    def swings(self, partner: RunRecord | None) -> bool:
        """Return whether accuracy swings in the last ten rounds.

        Parameters
        ----------
        partner
            FedAvg with the same seed; if it is ``None`` or diverged, accuracies must alternate
            (:func:`~fedtaco.records.swings.alternates`).
        """
        return range_swings(self.late_range, alternates(self.accuracy), partner.late_range if partner else None)


@dataclass(frozen=True)
class EntryRecord:
    """A method or a control on one task."""

    name: str
    """The method as the preset names it, such as ``"taco"`` or ``"mine:Clipped"``, or the name of the control."""
    method: str
    """The method as the preset names it; of a control, FedAvg."""
    settings: Values
    """The settings that were chosen; empty if all of them diverged, and nothing was evaluated."""
    notes: list[str]
    tuning: list[TuningRunRecord]
    """Empty for a control."""
    evaluation: list[RunRecord]


@dataclass(frozen=True)
class TaskRecord:
    """All results on one task."""

    name: str
    primary: bool
    target: Accuracy
    finalists: int
    """Number of settings of every method that were tried with all tuning seeds; the others only with the first."""
    settings: dict[str, float | str | bool]
    entries: list[EntryRecord]


@dataclass(frozen=True)
class BenchmarkRecord:
    """All results of a benchmark."""

    format: int
    fedtaco: str
    """The version of fedtaco."""
    name: str
    title: str
    reference: str
    budget: int
    tuning_seeds: list[int]
    twins: list[list[str]]
    costs: dict[str, Cost]
    """What each method costs a client."""
    tasks: list[TaskRecord]


def write_record(record: BenchmarkRecord, path: Path) -> None:
    """Write a record as JSON; an existing file is replaced once the new one is complete."""
    with writing(path), replacing(path) as temporary:
        temporary.write_text(_format(asdict(record)) + "\n", encoding="utf-8")


def read_record(path: Path) -> BenchmarkRecord:
    """Read a record. Nothing that it names is imported.

    Raises
    ------
    InvalidInput
        If the file cannot be read, is damaged, or was written by another version of fedtaco.
    """
    with reading(path):
        content = STRICT_JSON.decode(read_bounded(path))
        if isinstance(content, dict) and content.get("format", FORMAT) != FORMAT:
            raise InvalidInput(
                f"{path} has the format {content['format']}, not {FORMAT}; read it with the version of fedtaco that "
                "wrote it."
            )
        return read_as(BenchmarkRecord, content)


def _format(value: Any, depth: int = 0) -> str:
    """Return JSON in which a line is not longer than a run."""
    if depth < RUN_DEPTH and isinstance(value, dict):
        ends, parts = "{}", [f"{json.dumps(name)}: {_format(one, depth + 1)}" for name, one in value.items()]
    elif depth < RUN_DEPTH and isinstance(value, list):
        ends, parts = "[]", [_format(one, depth + 1) for one in value]
    else:
        return json.dumps(value, allow_nan=False)
    return "\n".join([ends[0], ",\n".join(parts), ends[1]]) if parts else ends
