"""Clients that do unequal work: shares of the local steps, clients that do not answer, and deadlines.

Everything is drawn from the seed, and nothing is measured, so that all methods and engines see the same clients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedtaco.errors import InvalidInput
from fedtaco.printable import quoted
from fedtaco.randomness import generator
from fedtaco.records import MISSED_DEADLINE, NO_ANSWER

FORMS = "full, uniform:0.3,1.0 (drawn once for each client) or uniform:0.3,1.0,round (drawn anew in each round)"
MAX_SPEED = 2.0
"""Speed of the fastest clients; the slowest have its inverse, and the logarithms of speeds are uniform in between."""


@dataclass(frozen=True)
class LocalWork:
    """The share of its steps that a client takes, drawn uniformly between ``low`` and ``high``."""

    low: float = 1.0
    high: float = 1.0
    every_round: bool = False
    """Whether a client's share is drawn anew in each round."""

    @property
    def is_full(self) -> bool:
        """Whether every client takes all its steps."""
        return self.low == self.high == 1

    def share(self, seed: int, client: int, round_number: int) -> float:
        """Return the share of a client in a round."""
        if self.low == self.high:
            return self.low
        keys = (client, round_number) if self.every_round else (client,)
        return float(generator(seed, "local work", *keys).uniform(self.low, self.high))


FULL_WORK = LocalWork()


def parse_local_work(text: str) -> LocalWork:
    """Return the local work that a text describes.

    Parameters
    ----------
    text
        ``full``, ``uniform:LOW,HIGH`` or ``uniform:LOW,HIGH,round``, where 0 < LOW ≤ HIGH ≤ 1.

    Raises
    ------
    InvalidInput
        If the text is anything else.

    Examples
    --------
    >>> parse_local_work("uniform:0.3,1.0,round")
    LocalWork(low=0.3, high=1.0, every_round=True)
    """
    if text == "full":
        return FULL_WORK
    number = r"([01]|[01]?\.[0-9]{1,20})"
    found = re.fullmatch(rf"uniform:{number},{number}(,round)?", text)
    if found is None or not 0 < float(found[1]) <= float(found[2]) <= 1:
        raise InvalidInput(f"local_work is {quoted(text)}; it must be {FORMS}, with shares above 0 and at most 1.")
    return LocalWork(float(found[1]), float(found[2]), found[3] is not None)


def steps_of_share(share: float, steps: int) -> int:
    """Return the number of steps of a client that does a share of its work, at least 1.

    >>> steps_of_share(0.34, 10), steps_of_share(0.01, 10), steps_of_share(1.0, 10)
    (3, 1, 10)
    """
    return max(1, round(share * steps))


def client_speed(seed: int, client: int) -> float:
    """Return the speed of a client, from 1/2 to 2; at speed 1, K steps take one unit of simulated time."""
    return float(MAX_SPEED ** generator(seed, "client speed", client).uniform(-1, 1))


@dataclass(frozen=True)
class RoundWork:
    """What the clients of a cohort do in one round."""

    steps: Mapping[int, int]
    """Number of steps of each client."""
    absent: Mapping[int, str]
    """Clients that do not answer, with the reason."""
    duration: float
    """Simulated time until the last answer, or the deadline if a client missed it; K steps at speed 1 take 1."""


@dataclass(frozen=True)
class ClientWork:
    """The work of simulated clients: how many steps they take, and which of them do not answer."""

    local_work: LocalWork = FULL_WORK
    dropout: float = 0.0
    """Probability that a client of the cohort does not answer."""
    deadline: float | None = None
    """Simulated time after which the server no longer waits for answers."""

    def steps(self, seed: int, round_number: int, full: Mapping[int, int]) -> dict[int, int]:
        """Return the number of steps of each client in a round; ``full`` holds those of its whole work."""
        return {
            client: steps_of_share(self.local_work.share(seed, client, round_number), own)
            for client, own in full.items()
        }

    def in_round(self, seed: int, round_number: int, full: Mapping[int, int], local_steps: int) -> RoundWork:
        """Return what the clients of a cohort do in a round.

        Parameters
        ----------
        seed, round_number
            What all draws depend on, besides the client.
        full
            Number of steps of each client's whole work.
        local_steps
            K, the unit of simulated time.
        """
        steps = self.steps(seed, round_number, full)
        durations = {client: own / (local_steps * client_speed(seed, client)) for client, own in steps.items()}
        absent: dict[int, str] = {}
        for client, time in durations.items():
            if generator(seed, "client dropout", client, round_number).random() < self.dropout:
                absent[client] = NO_ANSWER
            elif self.deadline is not None and time > self.deadline:
                absent[client] = MISSED_DEADLINE
        answered = [time for client, time in durations.items() if client not in absent]
        if self.deadline is not None and MISSED_DEADLINE in absent.values():
            return RoundWork(steps, absent, self.deadline)
        return RoundWork(steps, absent, max(answered, default=0.0))

    def require_answers(self, seed: int, full: Sequence[int], local_steps: int) -> None:
        """Raise InvalidInput if every client would miss the deadline in every round."""
        if self.deadline is None:
            return
        if self.local_work.every_round:
            steps = [steps_of_share(self.local_work.low, own) for own in full]
        else:
            steps = list(self.steps(seed, 1, dict(enumerate(full))).values())
        fastest = min(own / (local_steps * client_speed(seed, client)) for client, own in enumerate(steps))
        if fastest > self.deadline:
            raise InvalidInput(
                f"deadline is {self.deadline:g}, but even the fastest client needs more; set at least "
                f"{math.ceil(1000 * fastest) / 1000:g}."
            )
