"""Hyper-parameters of a method: dataclass fields that carry their range and meaning."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from fedtaco.errors import InvalidInput


@dataclass(frozen=True)
class Domain:
    """The values a parameter may take, and what it means."""

    help: str
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    choices: tuple[str, ...] = ()
    whole: bool = False

    def describe(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        limits = []
        if self.low is not None:
            limits.append(f"{'above' if self.open_low else 'at least'} {self.low:g}")
        if self.high is not None:
            limits.append(f"at most {self.high:g}")
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {' and '.join(limits)}".strip()

    def admits(self, value: object) -> bool:
        if self.choices:
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        above = self.low is None or value > self.low or (value == self.low and not self.open_low)
        below = self.high is None or value <= self.high
        return above and below and value - value == 0  # neither infinite nor NaN


def parameter(default: Any, help: str, **domain: Any) -> Any:  # noqa: A002 - argparse's and typer's word
    """A method's hyper-parameter: ``zeta: float = parameter(0.1, "weight of the pull", low=0)``."""
    return dataclasses.field(default=default, metadata={"domain": Domain(help, **domain)})


def domains(owner: type | object) -> dict[str, Domain]:
    """The parameters of a dataclass, by name."""
    fields = dataclasses.fields(owner)  # type: ignore[arg-type]  # the argument is a dataclass or an instance of one
    return {field.name: field.metadata["domain"] for field in fields if "domain" in field.metadata}


def check_parameters(owner: Any, namespace: str) -> None:
    """Refuse a value outside its domain; ``None`` is allowed where it is the default."""
    defaults = {field.name: field.default for field in dataclasses.fields(owner)}
    for name, domain in domains(owner).items():
        value = getattr(owner, name)
        if value is None and defaults[name] is None:
            continue
        if not domain.admits(value):
            raise InvalidInput(f"{namespace}.{name} is {value!r}; it must be {domain.describe()}.")
