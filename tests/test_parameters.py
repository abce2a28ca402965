"""Parameters: valid values, and classes that cannot be configured."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fedtaco import FedProx, InvalidInput, Method, Taco
from fedtaco.parameters import Domain, domains, parameter
from fedtaco.trust import Guard, PaperDetector


def test_declared_numbers_are_limited_so_that_they_fit_into_tensors():
    for domain, description in (
        (Domain("").bounded(), "a number at least -1e+30 and at most 1e+30"),
        (Domain("", low=1, whole=True).bounded(), "a whole number at least 1 and at most 1,000,000,000"),
        (Domain("", low=0, high=2**40, whole=True), "a whole number at least 0 and at most 1,099,511,627,776"),
    ):
        assert domain.describe() == description
    with pytest.raises(InvalidInput, match=r"guard\.max_strikes is 99999999999999999999; it must be a whole number"):
        Guard(max_strikes=99999999999999999999)
    with pytest.raises(InvalidInput, match=r"fedprox\.zeta is 1e\+31; it must be .* and at most 1e\+30"):
        FedProx(zeta=1e31)


@pytest.mark.parametrize(
    ("domain", "description", "valid", "invalid"),
    [
        (Domain(""), "a number", [0, -1.5, 1e300], [True, "1", None, float("nan"), float("inf")]),
        (Domain("", low=0, high=1), "a number at least 0 and at most 1", [0, 0.5, 1], [-1e-9, 1.1]),
        (Domain("", low=0, open_low=True), "a number above 0", [1e-9], [0, -1]),
        (Domain("", high=1, open_high=True), "a number below 1", [-5, 0.999], [1]),
        (Domain("", low=1, whole=True), "a whole number at least 1", [1, 7], [0, 1.0, 1.5, True]),
        (Domain("", choices=("a", "b")), "one of a, b", ["a", "b"], ["c", 0, None]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_domain(domain, description, valid, invalid):
    assert domain.describe() == description
    assert [value for value in valid if not domain.admits(value)] == []
    assert [value for value in invalid if domain.admits(value)] == []


def test_invalid_parameter_names_field_value_and_valid_values():
    with pytest.raises(InvalidInput) as error:
        Taco(gamma=1.5)
    assert str(error.value) == "taco.gamma is 1.5; it must be a number at least 0 and at most 1."


def test_derived_parameters_are_not_listed():
    assert "paper.max_strikes" not in PaperDetector().parameters()
    assert PaperDetector(max_strikes=4).parameters().items() >= {"paper.kappa": 0.6, "paper.max_strikes": 4}.items()


def test_inherited_parameters_are_declared_too():
    @dataclass(frozen=True)
    class Extended(Taco):
        name = "extended"
        extra: float = parameter(1.0, "one more")

    assert set(domains(Extended)) == {*domains(Taco), "extra"}
    assert Extended(gamma=0.1).parameters()["extended.gamma"] == 0.1


def test_classes_that_cannot_be_configured_are_refused():
    class NoName(Method):
        summary = "has no name"

    class Undecorated(Method):
        name, summary = "undecorated", "lacks @dataclass"
        k: float = parameter(1.0, "k")

    @dataclass(frozen=True)
    class PlainField(Method):
        name, summary = "plain", "has a field that is not a parameter"
        k: float = 1.0

    class PathAsName(Method):
        name, summary = "../up", "has a path as its name"

    for cls, message in [
        (NoName, "needs a class attribute 'name'"),
        (Undecorated, "decorate it with @dataclass"),
        (PlainField, "The field k of the method PlainField must be made with parameter"),
        (PathAsName, "lower-case letters, digits and hyphens"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            cls()
