"""The history of a run: one record per round, and one per client and round."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any

from fedtaco.errors import unknown
from fedtaco.parameters import Domain
from fedtaco.records.formatting import pluralize
from fedtaco.records.quantities import QUANTITIES
from fedtaco.records.schema import read_as

Metric = Annotated[float, Domain("a number of which means and deviations are computed", low=-1e9, high=1e9)]
"""An accuracy or a number of seconds."""
Bytes = Annotated[int, Domain("a number of bytes", low=0, whole=True)]
NO_ANSWER, MISSED_DEADLINE = "did not answer", "missed the deadline"
"""The reasons for which simulated clients are dropped without an upload, see the settings ``client_dropout`` and
``deadline``."""


@dataclass(frozen=True)
class Decision:
    """What a detector decided about one client in one round, and why."""

    client: int
    action: str
    """``dropped`` (the upload is not used), ``expelled`` (the client is removed), ``clipped`` (the upload is scaled
    down), or ``spared`` (suspicious but used, because the round does not tell clients apart)."""
    test: str
    """Name of the test that the upload failed."""
    score: float
    threshold: float
    reason: str
    """In words, such as "the upload is zero"."""


@dataclass(frozen=True)
class RoundRecord:
    """One round; ``round`` counts from 1, ``accuracy`` is a fraction of the test set.

    What an evaluation provides is ``None`` in rounds without one, see the setting ``eval_every``.
    """

    round: int
    accuracy: Metric | None
    loss: float | None
    slowest_client_seconds: Metric | None
    """Compute time of the slowest client; ``None`` if the engine did not measure it."""
    wall_seconds: Metric
    """Elapsed time of the round, including the evaluation."""
    evaluation_seconds: Metric | None = None
    """Elapsed time of the evaluation; ``None`` if the round was not evaluated."""
    training_loss: float | None = None
    """Mean over the clients of the losses of their local steps."""
    output_accuracy: Metric | None = None
    """Accuracy of the model that the method returns, in the last round, if it is not the global model (TACO's z)."""
    validation_accuracy: Metric | None = None
    """Accuracy on held-out training samples."""
    validation_loss: float | None = None
    class_accuracy: list[Metric | None] | None = None
    """Accuracy on the test samples of each class."""
    balanced_accuracy: Metric | None = None
    """Mean of the accuracies of the classes."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Users' own metrics on the test set; ``None`` for one that could not be computed."""
    cohort: int = 0
    """Number of clients that were asked to train."""
    dropped: dict[int, str] = field(default_factory=dict)
    """The reason for each client whose upload was not used."""
    decisions: list[Decision] = field(default_factory=list)
    """What the detector decided."""
    simulated_duration: Metric | None = None
    """Simulated time until the last answer, or the deadline if a client missed it, in units of K steps at speed 1;
    ``None`` on Flower."""
    bytes_up: Bytes = 0
    """Bytes that the clients of the cohort sent, as the codec leaves them; dropped uploads included."""
    bytes_down: Bytes = 0
    """Bytes that they received."""
    wire_bytes_up: Bytes | None = None
    """The same with the headers of arrays, as messages carried them; ``None`` in a simulation."""
    wire_bytes_down: Bytes | None = None
    gain: float | None = None
    """Γ, by which the aggregation weights amplify the largest disagreement between clients; ``None`` if the method does
    not weigh uploads itself."""
    warning: str | None = None
    """What the stability monitor expects, without the final full stop; ``None`` if the aggregation is stable."""

    @property
    def is_evaluated(self) -> bool:
        """Whether the model was evaluated after the round, on test or held-out samples."""
        return self.loss is not None or self.accuracy is not None or self.validation_loss is not None


@dataclass(frozen=True)
class ClientRecord:
    """One client in one round."""

    round: int
    client: int
    quantities: Mapping[str, float | None]
    """The quantities measured for the upload, by the names in :data:`~fedtaco.records.QUANTITIES`."""
    seconds: float | None
    """Compute time of the client; ``None`` if the engine did not measure it."""
    strikes: int = 0
    """Number of times the client was found suspicious so far."""
    expelled: bool = False
    """Whether the client is expelled after this round."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores by which the detector judged the upload."""

    def to_row(self) -> dict[str, Any]:
        """Return the record as a line of ``clients.jsonl``, in which each quantity has a key of its own."""
        row = dict(vars(self))
        return {"round": row.pop("round"), "client": row.pop("client"), **row.pop("quantities"), **row}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ClientRecord:
        """Return the record of a line of ``clients.jsonl``; raise ValueError if it is not a valid record."""
        fields = dict(row)
        fields["quantities"] = {one.name: fields.pop(one.name) for one in QUANTITIES}
        return read_as(cls, fields)


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
        return f"<History of {pluralize(len(self), 'round')}{last}>"

    def column(self, name: str) -> list[Any]:
        """Return one field of every round.

        Parameters
        ----------
        name
            A field of :class:`RoundRecord`, such as ``accuracy``, or the name of an own metric.

        Raises
        ------
        InvalidInput
            If there is no such field or metric.
        """
        fields = [field.name for field in dataclasses.fields(RoundRecord)]
        if name in fields:
            return [getattr(record, name) for record in self.rounds]
        if name not in self.metric_names:
            raise unknown("column", name, [*fields, *self.metric_names])
        return [record.metrics.get(name) for record in self.rounds]

    @property
    def metric_names(self) -> list[str]:
        """The names of all own metrics."""
        return list(dict.fromkeys(name for record in self.rounds for name in record.metrics))

    def table(self) -> list[dict[str, Any]]:
        """Return one row per round, as ``pandas.DataFrame`` accepts them."""
        return [dataclasses.asdict(record) for record in self.rounds]

    def client_table(self) -> list[dict[str, Any]]:
        """Return one row per client and round."""
        return [record.to_row() for record in self.clients]

    @property
    def final_accuracy(self) -> float | None:
        """Test accuracy after the last evaluated round; ``None`` without a test set or rounds."""
        return None if (last := self.last_evaluated) is None else last.accuracy

    @property
    def last_evaluated(self) -> RoundRecord | None:
        """The last round in which the model was evaluated, on test or held-out samples; ``None`` if there is none."""
        return next((record for record in reversed(self.rounds) if record.is_evaluated), None)

    @property
    def is_timed(self) -> bool:
        """Whether the seconds of the slowest client are known for every round."""
        return bool(self.rounds) and all(record.slowest_client_seconds is not None for record in self.rounds)

    @property
    def client_seconds(self) -> list[float]:
        """Cumulative seconds of the slowest clients, one number per round."""
        return list(accumulate(record.slowest_client_seconds or 0.0 for record in self.rounds))

    def rounds_to(self, target: float) -> int | None:
        """Return the first round whose test accuracy is at least ``target``; ``None`` if there is none.

        If earlier rounds were not evaluated, the target may have been reached before; see :meth:`is_upper_bound`.
        """
        reached = (record.round for record in self.rounds if (record.accuracy or 0.0) >= target)
        return next(reached, None)

    def is_upper_bound(self, target: float) -> bool:
        """Return whether the target may have been reached before :meth:`rounds_to`, in a round without evaluation."""
        reached = self.rounds_to(target)
        before = [record for record in self.rounds if reached is not None and record.round == reached - 1]
        return any(record.accuracy is None for record in before)

    def seconds_to(self, target: float) -> float | None:
        """Return the cumulative seconds of the slowest clients until ``target`` is reached.

        Returns
        -------
        float or None
            ``None`` if the target is not reached, or seconds were not measured in every round.
        """
        round_number = self.rounds_to(target)
        if round_number is None or not self.is_timed:
            return None
        return self.client_seconds[round_number - self.rounds[0].round]


def finite_or_none(number: float) -> float | None:
    """Return a number as records contain it.

    >>> finite_or_none(0.5), finite_or_none(float("nan"))
    (0.5, None)
    """
    return number if math.isfinite(number) else None
