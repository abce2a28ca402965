"""Seconds of the slowest client in a round, from a short serial run in which the methods take turns.

Clients do equally many steps, so that a few of them tell; taking turns spreads a noisy machine's bad
minutes evenly over the methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any, Protocol

from fedtaco.errors import RunStopped
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.runs import Bench, Manner
from fedtaco.experiment.watching import Watcher
from fedtaco.federation import RoundOutcome

TURNS = 5
CLIENTS_IN_A_TURN = 2
MOST_STEPS = 50
"""A longer round is reckoned from this many steps."""


class Timed(Protocol):
    """A cell of a table, as far as timing goes."""

    @property
    def panel(self) -> Any: ...

    @property
    def variant(self) -> Any: ...

    @property
    def experiments(self) -> list[Experiment]: ...


def round_seconds(jobs: Sequence[Timed], manner: Manner, watcher: Watcher) -> dict[tuple[str, str], list[float]]:
    """Seconds of the slowest client in each of a few rounds, by panel and variant."""
    taken: dict[tuple[str, str], list[float]] = {}
    done = count(1)
    for _, group in groupby(jobs, key=lambda job: job.panel.name):
        contenders = [_Contender.of(job, manner) for job in group]
        for _ in range(TURNS + 1):
            for contender in contenders:
                taken.setdefault(contender.key, []).extend(contender.play())
                watcher.turn_timed(next(done), len(jobs) * (TURNS + 1))
    return {key: seconds[1:] for key, seconds in taken.items()}


@dataclass(frozen=True)
class _Contender:
    key: tuple[str, str]
    rounds: Iterator[RoundOutcome]
    factor: float
    """From the steps that are timed to those of a whole round."""

    @classmethod
    def of(cls, job: Timed, manner: Manner) -> _Contender:
        whole = job.experiments[0]
        steps = min(whole.local_steps, MOST_STEPS)
        short = whole.model_copy(
            update={
                "engine": "serial",
                "rounds": TURNS + 1,
                "local_steps": steps,
                "participation": min(1.0, CLIENTS_IN_A_TURN / whole.clients),
            }
        )
        federation = Bench.of(short, Manner(data_dir=manner.data_dir), None).federation
        federation.test = None
        rounds = federation.rounds(federation.begin())
        return cls((job.panel.name, job.variant.name), rounds, whole.local_steps / steps)

    def play(self) -> list[float]:
        """The next round's seconds; none once the run has diverged."""
        with suppress(RunStopped):
            for outcome in self.rounds:
                seconds = outcome.record.slowest_client_seconds
                assert seconds is not None
                return [seconds * self.factor]
        return []
