"""The history of a run: one record per round, and one per client and round."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedtaco.errors import unknown
from fedtaco.records.quantities import QUANTITIES


@dataclass(frozen=True)
class Decision:
    """What a detector decided about one client in one round, and why."""

    client: int
    action: str
    """``dropped`` (this upload), ``expelled`` (the client too), or ``spared`` if all were suspicious."""
    test: str
    score: float
    threshold: float
    reason: str
    """In words, such as "the upload is zero"."""


@dataclass(frozen=True)
class RoundRecord:
    """One round; ``round`` counts from 1, ``accuracy`` is a fraction of the test set."""

    round: int
    accuracy: float | None
    loss: float | None
    slowest_client_seconds: float | None
    wall_seconds: float
    output_accuracy: float | None = None
    """In the last round, accuracy of the model that the method returns if that is not the global model (TACO's z)."""
    validation_accuracy: float | None = None
    """Accuracy on held-out training samples."""
    validation_loss: float | None = None
    class_accuracy: list[float | None] | None = None
    """Accuracy on the test samples of each class."""
    cohort: int = 0
    """Number of clients that were asked."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Clients whose upload was not used, with the reason."""
    decisions: list[Decision] = field(default_factory=list)
    """What the detector decided."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> RoundRecord:
        """Return the record of a line of ``rounds.jsonl``."""
        dropped = {int(client): str(reason) for client, reason in row["dropped"].items()}
        decisions = [Decision(**decision) for decision in row["decisions"]]
        return cls(**{**row, "dropped": dropped, "decisions": decisions})


@dataclass(frozen=True)
class ClientRecord:
    """One client in one round."""

    round: int
    client: int
    quantities: Mapping[str, float | None]
    """What was measured of the upload, by the names in :data:`~fedtaco.records.QUANTITIES`."""
    seconds: float | None
    strikes: int = 0
    expelled: bool = False
    scores: Mapping[str, float] = field(default_factory=dict)
    """Scores by which the detector judged this upload."""

    def to_row(self) -> dict[str, Any]:
        """Return the record as a line of ``clients.jsonl``, in which each quantity has a key of its own."""
        row = dataclasses.asdict(self)
        return {"round": row.pop("round"), "client": row.pop("client"), **row.pop("quantities"), **row}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ClientRecord:
        """Return the record of a line of ``clients.jsonl``."""
        quantities = {quantity.name: row[quantity.name] for quantity in QUANTITIES}
        return cls(quantities=quantities, **{name: value for name, value in row.items() if name not in quantities})


@dataclass(repr=False)
class History:
    """All records of a run.

    >>> history = History([RoundRecord(1, 0.5, 1.0, 2.0, 3.0), RoundRecord(2, 0.8, 0.5, 2.0, 3.0)])
    >>> history.rounds_to(0.7), history.seconds_to(0.7), history.final_accuracy
    (2, 4.0, 0.8)
    >>> history.column("accuracy")
    [0.5, 0.8]
    """

    rounds: list[RoundRecord] = field(default_factory=list)
    clients: list[ClientRecord] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[RoundRecord]:
        return iter(self.rounds)

    def __getitem__(self, index: int) -> RoundRecord:
        return self.rounds[index]

    def __repr__(self) -> str:
        last = "" if self.final_accuracy is None else f", final accuracy {self.final_accuracy:.4f}"
        return f"<History of {len(self)} round{'' if len(self) == 1 else 's'}{last}>"

    def column(self, name: str) -> list[Any]:
        """Return one field of every round, such as ``accuracy``."""
        known = [field.name for field in dataclasses.fields(RoundRecord)]
        if name not in known:
            raise unknown("column", name, known)
        return [getattr(record, name) for record in self.rounds]

    def table(self) -> list[dict[str, Any]]:
        """Return one row per round; ``pandas.DataFrame(history.table())`` works as it is."""
        return [dataclasses.asdict(record) for record in self.rounds]

    def client_table(self) -> list[dict[str, Any]]:
        """Return one row per client and round."""
        return [record.to_row() for record in self.clients]

    @property
    def final_accuracy(self) -> float | None:
        return self.rounds[-1].accuracy if self.rounds else None

    @property
    def is_timed(self) -> bool:
        """Whether the seconds of the slowest client are known for every round."""
        return bool(self.rounds) and all(record.slowest_client_seconds is not None for record in self.rounds)

    @property
    def client_seconds(self) -> list[float]:
        """Seconds of each round's slowest client, summed up to each round."""
        return list(accumulate(record.slowest_client_seconds or 0.0 for record in self.rounds))

    def rounds_to(self, target: float) -> int | None:
        """Return the first round whose test accuracy is at least ``target``, or ``None``."""
        reached = (record.round for record in self.rounds if (record.accuracy or 0.0) >= target)
        return next(reached, None)

    def seconds_to(self, target: float) -> float | None:
        """Return the summed seconds of the slowest clients until ``target`` is reached, or ``None``."""
        round_number = self.rounds_to(target)
        if round_number is None or not self.is_timed:
            return None
        return self.client_seconds[round_number - self.rounds[0].round]

    def plot(self, path: str | Path | None = None, *, label: str | None = None) -> Any:
        """Draw accuracy over rounds on matplotlib's current axes; save the figure if ``path`` is given."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("Plots need matplotlib: pip install 'fedtaco[plot]'.") from error
        axes = plt.gca()
        axes.plot(self.column("round"), self.column("accuracy"), label=label)
        axes.set(xlabel="round", ylabel="test accuracy")
        if label:
            axes.legend()
        if path is not None:
            plt.savefig(path)
        return axes
