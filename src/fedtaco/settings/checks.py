"""Checks of settings, one at a time, as they are declared."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import NoneType, UnionType
from typing import Any, get_args

from fedtaco.errors import InvalidInput, unknown
from fedtaco.parameters import Configurable, Domain, plain_number, split_names
from fedtaco.printable import quoted
from fedtaco.settings.declarations import declared


def check_settings(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a class, checked, with defaults for those that are missing or ``None``.

    Raises
    ------
    InvalidInput
        If a setting does not exist, or its value is not valid.
    """
    check_names(kind, given)
    return {
        name: declaration.default if given.get(name) is None else check_setting(kind, name, given[name])
        for name, (_, declaration) in declared(kind).items()
    }


def check_names(kind: type, given: Iterable[str], keywords: Sequence[str] = ()) -> None:
    """Raise InvalidInput if a class has no setting of one of these names; ``keywords`` are other names to suggest."""
    known = declared(kind)
    for name in given:
        if name not in known:
            raise unknown("setting", name, [*known, *keywords])


def check_setting(kind: type, name: str, value: Any) -> Any:
    """Return a value of a declared setting; raise InvalidInput if it is not valid.

    Numbers are returned as the declared type, and lists of names as text with commas.
    """
    value = plain_number(value)
    hint, declaration = declared(kind)[name]
    domain = declaration.domain
    kinds = set(get_args(hint) if isinstance(hint, UnionType) else (hint,)) - {NoneType}
    if kinds & {int, float}:
        domain = replace(domain, whole=int in kinds).bounded()
        is_valid, expected = domain.admits(value), domain.describe()
    elif domain.choices:
        is_valid, expected = domain.admits(value), domain.describe()
    elif Sequence[str] in kinds:
        names = _names(value)
        is_valid, expected = bool(names), "a list of names, or text with commas between them"
        value = ",".join(names) or value
    elif Configurable in kinds:
        cls = value if isinstance(value, type) else type(value)
        is_valid, expected = issubclass(cls, str | Configurable) and value is not str, "text, an object or its class"
    elif bool in kinds:
        is_valid, expected = isinstance(value, bool), "true or false"
    else:
        is_valid, expected = (
            (isinstance(value, str), "text") if str in kinds else (isinstance(value, Mapping), "a mapping")
        )
    if not is_valid:
        raise InvalidInput(f"{name} is {quoted(value)}; it must be {expected}.")
    return float(value) if float in kinds else value


def _names(value: Any) -> list[str]:
    """Return the names in a list or text; empty if it is neither, or contains something else."""
    listed = value if isinstance(value, list | tuple) else [value]
    return split_names(",".join(listed)) if all(isinstance(one, str) for one in listed) else []


def check_seeds(count: int) -> None:
    """Raise InvalidInput if a number of seeds is not valid."""
    domain = Domain("number of seeds", low=1, high=1000, whole=True)
    if not domain.admits(count):
        raise InvalidInput(f"seeds is {quoted(count)}; it must be {domain.describe()}.")
