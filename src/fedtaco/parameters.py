"""Parameters of methods, detectors, behaviours and codecs: dataclass fields with valid values and a description."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any, ClassVar, Self

from fedtaco.errors import InvalidInput
from fedtaco.printable import quoted

ParameterValue = float | str
MAX_NUMBER, MAX_WHOLE = 1e30, 1_000_000_000
"""Largest valid number, and largest valid integer, of a parameter or setting that declares no other limit."""


@dataclass(frozen=True)
class Domain:
    """The valid values of a parameter or setting, and its meaning."""

    help: str
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    """Whether ``low`` itself is invalid."""
    open_high: bool = False
    """Whether ``high`` itself is invalid."""
    choices: tuple[str, ...] = ()
    """The valid strings; if there are any, numbers are invalid."""
    whole: bool = False
    """Whether only integers are valid."""

    def describe(self) -> str:
        """Describe the valid values, as in "a number above 0 and at most 1"."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        limits = []
        if self.low is not None:
            limits.append(f"{'above' if self.open_low else 'at least'} {self._describe(self.low)}")
        if self.high is not None:
            limits.append(f"{'below' if self.open_high else 'at most'} {self._describe(self.high)}")
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {' and '.join(limits)}".strip()

    def _describe(self, limit: float) -> str:
        return f"{int(limit):,}" if self.whole else f"{limit:g}"

    def admits(self, value: object) -> bool:
        """Return whether ``value`` is valid."""
        if self.choices:
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        above = self.low is None or value > self.low or (value == self.low and not self.open_low)
        below = self.high is None or value < self.high or (value == self.high and not self.open_high)
        return above and below and value - value == 0  # neither infinite nor NaN

    def bounded(self) -> Domain:
        """Return this domain with general limits where it has none, so that every valid number fits into a tensor."""
        largest = MAX_WHOLE if self.whole else MAX_NUMBER
        low, high = (-largest if self.low is None else self.low), (largest if self.high is None else self.high)
        return dataclasses.replace(self, low=low, high=high)


def parameter(default: Any, help: str, **domain: Any) -> Any:  # noqa: A002 - the name that argparse and typer use
    """Declare a parameter as a dataclass field.

    Parameters
    ----------
    default
        The default value; ``None`` if the class derives the value itself, such as γ = 1/K.
    help
        What the parameter means.
    **domain
        The valid values: ``low``, ``high``, ``open_low``, ``open_high``, ``choices``, ``whole``. Without ``low`` or
        ``high``, the limit is :data:`MAX_NUMBER` or :data:`MAX_WHOLE`.

    Returns
    -------
    dataclasses.Field
        The field, with the valid values in its metadata. A value is checked when the class is instantiated.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Proximal(Configurable):
    ...     kind, name, summary = "method", "proximal", "adds a proximal term"
    ...     zeta: float = parameter(0.1, "weight of the proximal term", low=0)
    >>> Proximal(zeta=-1)
    Traceback (most recent call last):
    fedtaco.errors.InvalidInput: proximal.zeta is -1; it must be a number at least 0 and at most 1e+30.
    """
    return dataclasses.field(default=default, metadata={"domain": Domain(help, **domain).bounded()})


def plain_number(value: Any) -> Any:
    """Return a number of numpy as one of Python, and any other value as it is.

    >>> import numpy as np
    >>> plain_number(np.int64(3)), plain_number("3")
    (3, '3')
    """
    return value.item() if isinstance(value, Number) and hasattr(value, "item") else value


def value_order(value: object) -> tuple[int, float, str]:
    """Return a key by which values are sorted: numbers by size, then text.

    >>> sorted(["b", 10, 0.02, "a", 1e-5], key=value_order)
    [1e-05, 0.02, 10, 'a', 'b']
    """
    return (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))


def domains(owner: type | object) -> dict[str, Domain]:
    """Return the domain of each parameter of a dataclass."""
    fields = dataclasses.fields(owner)  # type: ignore[arg-type]  # the argument is a dataclass or an instance of one
    return {field.name: field.metadata["domain"] for field in fields if "domain" in field.metadata}


@dataclass(frozen=True)
class Configurable:
    """Base of methods, detectors, behaviours and codecs: a frozen dataclass whose fields are its parameters."""

    kind: ClassVar[str]
    """What the class is, for messages: ``method``, ``detector``, ``behaviour`` or ``codec``."""
    name: ClassVar[str]
    """The name on the command line, and the namespace of the parameters."""
    summary: ClassVar[str]
    """What the class does, in a few words."""

    def __post_init__(self) -> None:
        check_class(type(self))
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name, domain in domains(self).items():
            value = plain_number(getattr(self, name))
            object.__setattr__(self, name, value)
            if not (value is None and defaults[name] is None) and not domain.admits(value):
                raise InvalidInput(f"{self.name}.{name} is {quoted(value)}; it must be {domain.describe()}.")

    def parameters(self) -> dict[str, ParameterValue]:
        """Return the values by full name, such as ``taco.gamma``, except ``None``, which stands for a derived value."""
        values = {f"{self.name}.{name}": getattr(self, name) for name in domains(self)}
        return {name: value for name, value in values.items() if value is not None}

    def with_parameters(self, parameters: Mapping[str, ParameterValue]) -> Self:
        """Return a copy with the values of those full names, such as ``taco.gamma``, that belong to this class."""
        names = {name: f"{self.name}.{name}" for name in domains(self)}
        changes = {name: parameters[full] for name, full in names.items() if full in parameters}
        return dataclasses.replace(self, **changes) if changes else self


def split_names(text: str) -> list[str]:
    """Return the names in a list separated by commas.

    >>> split_names("fedavg, taco,")
    ['fedavg', 'taco']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def check_class(cls: type[Configurable]) -> None:
    """Raise InvalidInput if ``name`` or ``summary`` is missing, ``name`` is invalid, or a field is not a parameter."""
    what = f"The {cls.kind} {cls.__name__}"
    for attribute in ("name", "summary"):
        if not hasattr(cls, attribute):
            raise InvalidInput(f"{what} needs a class attribute '{attribute}'.")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", cls.name):
        raise InvalidInput(f"The {cls.kind}'s name is '{cls.name}'; use lower-case letters, digits and hyphens.")
    if any(isinstance(value, dataclasses.Field) for value in vars(cls).values()):
        raise InvalidInput(f"{what} has parameters: decorate it with @dataclass(frozen=True).")
    plain = [field.name for field in dataclasses.fields(cls) if "domain" not in field.metadata]
    if plain:
        raise InvalidInput(
            f"The field {plain[0]} of the {cls.kind} {cls.__name__} must be made with parameter(default, help), "
            "so that it can be checked, set and recorded."
        )
