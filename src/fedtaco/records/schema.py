"""Check that data read from a file have the declared types, and convert them."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from fedtaco.parameters import Domain
from fedtaco.printable import printable

Reader = Callable[[Any], Any]
"""Returns a value as its declared type; raises ValueError if it is of another one."""
Record = TypeVar("Record")


def read_as(kind: type[Record], value: Any) -> Record:
    """Return what was read from a JSON or TOML file as an instance of its declared type.

    Parameters
    ----------
    kind
        A dataclass, whose fields must all be there and no others, or a TypedDict, which may have further entries. Types
        of fields are numbers, text, lists, mappings, ``None``, other such classes, and ``Annotated[..., Domain(...)]``.
    value
        What was read.

    Raises
    ------
    ValueError
        If an entry is missing, unknown or of another type, or a number is not finite.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: float
    ...     name: str | None
    >>> read_as(Point, {"x": 1.5, "name": None})
    Point(x=1.5, name=None)
    >>> read_as(Point, {"x": "1.5", "name": None})
    Traceback (most recent call last):
    ValueError: x: '1.5' is not a number
    """
    hint: Any = kind
    return cast(Record, _reader(hint)(value))


@cache
def _reader(hint: Any) -> Reader:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if dataclasses.is_dataclass(hint) or is_typeddict(hint):
        return _class_reader(hint)
    return _GENERICS[get_origin(hint)](*get_args(hint))


def _class_reader(kind: Any) -> Reader:
    hints, is_open = get_type_hints(kind, include_extras=True), is_typeddict(kind)
    readers = {name: _reader(hint) for name, hint in hints.items()}
    is_total = getattr(kind, "__total__", True)
    required = {name for name, hint in hints.items() if is_total and get_origin(hint) is not NotRequired}

    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise _mismatch(value, "a table")
        if value.keys() != readers.keys():
            if missing := required - value.keys():
                raise ValueError(f"{min(missing)} is missing")
            if not is_open:
                raise ValueError(f"'{printable(min(value.keys() - readers.keys()))}' is not a known entry")
        found, name = {}, ""
        try:
            for name, reader in readers.items():
                if name in value:
                    found[name] = reader(value[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return {**value, **found} if is_open else kind(**found)

    return read


def _domain_reader(hint: Any, domain: Domain) -> Reader:
    reader = _reader(hint)

    def read(value: Any) -> Any:
        number = reader(value)
        if not domain.admits(number):
            raise _mismatch(number, domain.describe())
        return number

    return read


def _union_reader(*hints: Any) -> Reader:
    *others, last = [_reader(hint) for hint in hints if hint is not NoneType]
    is_optional = NoneType in hints

    def read(value: Any) -> Any:
        if value is None and is_optional:
            return None
        for reader in others:
            with suppress(ValueError):
                return reader(value)
        return last(value)

    return read


def _list_reader(hint: Any) -> Reader:
    reader = _reader(hint)

    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _mismatch(value, "a list")
        return [reader(one) for one in value]

    return read


def _mapping_reader(key: type, hint: Any) -> Reader:
    key_reader, reader = _read_key if key is int else _read_text, _reader(hint)

    def read(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise _mismatch(value, "a table")
        return {key_reader(name): reader(one) for name, one in value.items()}

    return read


def _read_int(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise _mismatch(value, "a whole number")
    return value


def _read_float(value: Any) -> float:
    if (type(value) is not float and type(value) is not int) or value - value != 0:  # the latter if not finite
        raise _mismatch(value, "a number")
    return cast(float, value)


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _mismatch(value, "true or false")
    return value


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise _mismatch(value, "text")
    if not value.isascii():
        value.encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
    return value


def _read_key(value: str) -> int:
    """Return the number that a JSON object has as a key."""
    if str(number := int(value)) != value:
        raise _mismatch(value, "a whole number")
    return number


_SCALARS: dict[Any, Reader] = {int: _read_int, float: _read_float, bool: _read_bool, str: _read_text}
_GENERICS: dict[Any, Callable[..., Reader]] = {
    list: _list_reader,
    dict: _mapping_reader,
    Mapping: _mapping_reader,
    Union: _union_reader,
    UnionType: _union_reader,
    Annotated: _domain_reader,
    NotRequired: _reader,
}


def _mismatch(value: Any, expected: str) -> ValueError:
    return ValueError(f"{printable(repr(value), 60)} is not {expected}")
