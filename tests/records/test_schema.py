"""Types of what is read from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NotRequired, TypedDict

import pytest

from fedtaco.parameters import Domain
from fedtaco.records.schema import read_as


class Origin(TypedDict):
    name: str
    version: NotRequired[int]


@dataclass(frozen=True)
class Point:
    x: float


@dataclass(frozen=True)
class Shape:
    """One field of each kind."""

    sides: Annotated[int, Domain("number of sides", low=3, whole=True)]
    area: float | None
    closed: bool
    label: int | str
    points: list[Point]
    names: dict[int, str]
    weights: Mapping[str, float | None] = field(default_factory=dict)
    origin: Origin | None = None


VALID = {
    "sides": 3,
    "area": None,
    "closed": True,
    "label": "a",
    "points": [{"x": 1.5}],
    "names": {"2": "two"},
    "weights": {"a": 1, "b": None},
    "origin": {"name": "hand", "more": [1]},
}


def test_valid_values_are_converted():
    shape = read_as(Shape, VALID)
    expected = Shape(3, None, True, "a", [Point(1.5)], {2: "two"}, {"a": 1, "b": None}, {"name": "hand", "more": [1]})
    assert shape == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sides": 2}, "sides: 2 is not a whole number at least 3"),
        ({"sides": 3.0}, "sides: 3.0 is not a whole number"),
        ({"sides": True}, "sides: True is not a whole number"),
        ({"sides": 1 << 63}, "is not a whole number"),
        ({"area": "1"}, "area: '1' is not a number"),
        ({"area": float("nan")}, "area: nan is not a number"),
        ({"area": float("-inf")}, "area: -inf is not a number"),
        ({"area": False}, "area: False is not a number"),
        ({"closed": 1}, "closed: 1 is not true or false"),
        ({"closed": None}, "closed: None is not true or false"),
        ({"label": 1.5}, "label: 1.5 is not text"),
        ({"label": "\ud800"}, "label: .* surrogates not allowed"),
        ({"points": {}}, "points: {} is not a list"),
        ({"points": [3]}, "points: 3 is not a table"),
        ({"points": [{"x": 1, "y": 2}]}, "points: 'y' is not a known entry"),
        ({"names": {"02": "two"}}, "names: '02' is not a whole number"),
        ({"names": {"two": "two"}}, "names: invalid literal"),
        ({"weights": [1]}, r"weights: \[1\] is not a table"),
        ({"origin": {}}, "origin: name is missing"),
        ({"origin": {"name": "hand", "version": "1"}}, "origin: version: '1' is not a whole number"),
        ({"area": "\x1b[2J" * 100}, r"area: '\\x1b\[2J.* … is not a number"),
    ],
)
def test_other_values_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        read_as(Shape, {**VALID, **change})


def test_missing_fields_are_refused_even_if_they_have_a_default():
    with pytest.raises(ValueError, match="origin is missing"):
        read_as(Shape, {name: value for name, value in VALID.items() if name != "origin"})
