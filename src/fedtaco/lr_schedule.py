"""Schedules of the learning rates: the factor by which the rates of clients and server are multiplied in a round."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fedtaco.errors import InvalidInput
from fedtaco.printable import quoted

FORMS = "constant, cosine, step:10,0.5 (every 10 rounds times 0.5) or exponential:0.998 (in each round)"


@dataclass(frozen=True)
class LrSchedule:
    """A constant rate, and the base of the other schedules."""

    def factor(self, round_number: int, rounds: int) -> float:
        """Return the factor in a round, which counts from 1, of a run with ``rounds`` rounds; 1 in the first round."""
        return 1.0


@dataclass(frozen=True)
class StepDecay(LrSchedule):
    """Multiplies the rate by ``decay`` after every ``every`` rounds: decay^⌊(t - 1) / every⌋."""

    every: int
    decay: float

    def factor(self, round_number: int, rounds: int) -> float:
        return self.decay ** ((round_number - 1) // self.every)


@dataclass(frozen=True)
class ExponentialDecay(LrSchedule):
    """Multiplies the rate by ``decay`` after every round: decay^(t - 1)."""

    decay: float

    def factor(self, round_number: int, rounds: int) -> float:
        return self.decay ** (round_number - 1)


@dataclass(frozen=True)
class CosineDecay(LrSchedule):
    """Half a cosine, ½ (1 + cos(π (t - 1) / T)): a round after the last one would have a rate of 0."""

    def factor(self, round_number: int, rounds: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * (round_number - 1) / rounds))


CONSTANT = LrSchedule()


def parse_schedule(text: str) -> LrSchedule:
    """Return the schedule that a text describes.

    Parameters
    ----------
    text
        ``constant``, ``cosine``, ``step:ROUNDS,FACTOR`` or ``exponential:FACTOR``, where a factor is above 0 and
        below 1.

    Raises
    ------
    InvalidInput
        If the text is anything else.

    Examples
    --------
    >>> schedule = parse_schedule("step:10,0.5")
    >>> [schedule.factor(number, rounds=30) for number in (1, 10, 11, 21)]
    [1.0, 1.0, 0.5, 0.25]
    """
    if text == "constant":
        return CONSTANT
    if text == "cosine":
        return CosineDecay()
    found = re.fullmatch(r"(?:step:([1-9][0-9]{0,6}),|exponential:)(0?\.[0-9]{1,20})", text)
    if found is None or float(found[2]) == 0:
        raise InvalidInput(f"lr_schedule is {quoted(text)}; it must be {FORMS}, with a factor above 0 and below 1.")
    every, decay = found[1], float(found[2])
    return ExponentialDecay(decay) if every is None else StepDecay(int(every), decay)
