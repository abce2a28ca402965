"""The history of a run: one record a round, one a client and round."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedtaco.errors import unknown


@dataclass(frozen=True)
class Decision:
    """What a detector decided about a client in a round, and why."""

    client: int
    action: str
    """``left out`` (this upload), ``expelled`` (the client, too), or ``spared`` where all were suspicious."""
    test: str
    score: float
    threshold: float
    reason: str
    """In words: "the upload is zero"."""


@dataclass(frozen=True)
class RoundRecord:
    """One round; ``round`` counts from 1, ``accuracy`` is a fraction of the test set."""

    round: int
    accuracy: float | None
    loss: float | None
    slowest_client_seconds: float | None
    wall_seconds: float
    output_accuracy: float | None = None
    """In the last round: accuracy of the model the method returns, where that is not the global model (TACO's z)."""
    validation_accuracy: float | None = None
    """Accuracy on the training samples that were held out."""
    validation_loss: float | None = None
    class_accuracy: list[float | None] | None = None
    """Accuracy on the test samples of each class."""
    cohort: int = 0
    """How many clients were asked."""
    dropped: dict[int, str] = field(default_factory=dict)
    """Clients whose upload was not used, with the reason."""
    decisions: list[Decision] = field(default_factory=list)
    """What a detector decided."""


@dataclass(frozen=True)
class ClientRecord:
    """One client in one round."""

    round: int
    client: int
    alpha: float | None
    """TACO's coefficient (Eq. 7) of this upload, whatever the method."""
    cosine: float | None
    """Cosine of the upload with the mean upload."""
    norm: float | None
    weight: float
    """The part of the aggregate that is this client's."""
    seconds: float | None
    strikes: int = 0
    expelled: bool = False
    scores: Mapping[str, float] = field(default_factory=dict)
    """What a detector judged this upload by."""


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
        """One field of every round, for plotting."""
        known = [field.name for field in dataclasses.fields(RoundRecord)]
        if name not in known:
            raise unknown("column", name, known)
        return [getattr(record, name) for record in self.rounds]

    def table(self) -> list[dict[str, Any]]:
        """A row a round; ``pandas.DataFrame(history.table())`` works as it is."""
        return [dataclasses.asdict(record) for record in self.rounds]

    def client_table(self) -> list[dict[str, Any]]:
        """A row a client and round."""
        return [dataclasses.asdict(record) for record in self.clients]

    @property
    def final_accuracy(self) -> float | None:
        return self.rounds[-1].accuracy if self.rounds else None

    @property
    def is_timed(self) -> bool:
        """Whether the engine could tell how long each client took."""
        return bool(self.rounds) and all(record.slowest_client_seconds is not None for record in self.rounds)

    @property
    def client_seconds(self) -> list[float]:
        """Seconds of the slowest clients, summed up to each round."""
        return list(accumulate(record.slowest_client_seconds or 0.0 for record in self.rounds))

    def rounds_to(self, target: float) -> int | None:
        """The first round whose test accuracy is at least ``target``; ``None`` if there is none."""
        reached = (record.round for record in self.rounds if (record.accuracy or 0.0) >= target)
        return next(reached, None)

    def seconds_to(self, target: float) -> float | None:
        """Seconds of the slowest clients until ``target`` is reached."""
        round_number = self.rounds_to(target)
        if round_number is None or not self.is_timed:
            return None
        return self.client_seconds[round_number - self.rounds[0].round]

    def plot(self, path: str | Path | None = None, *, label: str | None = None) -> Any:
        """Draw accuracy over rounds with matplotlib, on the current axes; save it if ``path`` is given."""
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
