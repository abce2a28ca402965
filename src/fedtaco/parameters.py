"""Parameters of methods, detectors and behaviours: dataclass fields that carry their range and meaning."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from fedtaco.errors import InvalidInput

ParameterValue = float | str


@dataclass(frozen=True)
class Domain:
    """The values a parameter or setting may take, and what it means."""

    help: str
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()
    whole: bool = False

    def describe(self) -> str:
        """Describe the valid values, as in "a number above 0 and at most 1"."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        limits = []
        if self.low is not None:
            limits.append(f"{'above' if self.open_low else 'at least'} {self.low:g}")
        if self.high is not None:
            limits.append(f"{'below' if self.open_high else 'at most'} {self.high:g}")
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {' and '.join(limits)}".strip()

    def admits(self, value: object) -> bool:
        """Return whether ``value`` is valid."""
        if self.choices:
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        above = self.low is None or value > self.low or (value == self.low and not self.open_low)
        below = self.high is None or value < self.high or (value == self.high and not self.open_high)
        return above and below and value - value == 0  # neither infinite nor NaN


def parameter(default: Any, help: str, **domain: Any) -> Any:  # noqa: A002 - argparse's and typer's word
    """Declare a parameter as a dataclass field.

    Parameters
    ----------
    default
        The value if none is given; ``None`` if the class derives it, such as γ = 1/K.
    help
        What the parameter means.
    **domain
        The valid values: ``low``, ``high``, ``open_low``, ``open_high``, ``choices``, ``whole``.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Proximal(Configurable):
    ...     kind, name, summary = "method", "proximal", "adds a proximal term"
    ...     zeta: float = parameter(0.1, "weight of the proximal term", low=0)
    >>> Proximal(zeta=-1)
    Traceback (most recent call last):
    fedtaco.errors.InvalidInput: proximal.zeta is -1; it must be a number at least 0.
    """
    return dataclasses.field(default=default, metadata={"domain": Domain(help, **domain)})


def domains(owner: type | object) -> dict[str, Domain]:
    """Return the domain of each parameter of a dataclass."""
    fields = dataclasses.fields(owner)  # type: ignore[arg-type]  # the argument is a dataclass or an instance of one
    return {field.name: field.metadata["domain"] for field in fields if "domain" in field.metadata}


@dataclass(frozen=True)
class Configurable:
    """Base of methods, detectors and behaviours: a frozen dataclass whose fields are its parameters."""

    kind: ClassVar[str]
    """What the class is, for messages: ``method``, ``detector`` or ``behaviour``."""
    name: ClassVar[str]
    """The name on the command line, and the namespace of the parameters."""
    summary: ClassVar[str]
    """What the class does, in a few words."""

    def __post_init__(self) -> None:
        check_class(type(self))
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name, domain in domains(self).items():
            value = getattr(self, name)
            if not (value is None and defaults[name] is None) and not domain.admits(value):
                raise InvalidInput(f"{self.name}.{name} is {value!r}; it must be {domain.describe()}.")

    def parameters(self) -> dict[str, ParameterValue]:
        """Return the parameters in force by their full names; one that is derived (γ = 1/K) is not listed."""
        values = {f"{self.name}.{name}": getattr(self, name) for name in domains(self)}
        return {name: value for name, value in values.items() if value is not None}


def check_class(cls: type[Configurable]) -> None:
    """Raise InvalidInput if a class cannot be named, configured or recorded."""
    what = f"The {cls.kind} {cls.__name__}"
    for attribute in ("name", "summary"):
        if not hasattr(cls, attribute):
            raise InvalidInput(f"{what} needs a class attribute '{attribute}'.")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", cls.name):
        raise InvalidInput(f"The {cls.kind}'s name is '{cls.name}'; write it in small letters, digits and hyphens.")
    if any(isinstance(value, dataclasses.Field) for value in vars(cls).values()):
        raise InvalidInput(f"{what} has parameters: decorate it with @dataclass(frozen=True).")
    plain = [field.name for field in dataclasses.fields(cls) if "domain" not in field.metadata]
    if plain:
        raise InvalidInput(
            f"The field {plain[0]} of the {cls.kind} {cls.__name__} must be made with parameter(default, meaning), "
            "so that it is checked, set and recorded."
        )
