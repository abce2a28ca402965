"""Small files of a run folder, in TOML or JSON, which contain a checksum of their own content."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import tomli_w

from fedtaco.errors import InvalidInput
from fedtaco.files import SCHEMA, reading_run, replacing
from fedtaco.records.digest import changed, require_file

MAX_BYTES = 16 << 20
"""Maximum size of a JSON file, or of a line of one, that is read as a whole."""
MAX_TOML_BYTES, MAX_DOTS = 100_000, 100
"""Maximum size of a TOML file, and of dots in a line; a key with n dots takes the parser memory in proportion to n²."""


def write_document(path: Path, content: Mapping[str, Any]) -> None:
    """Write a TOML or JSON file atomically, with schema version and checksum."""
    plain = _parse(path, _format(path, content))
    with replacing(path) as temporary:
        text = _format(path, {"schema": SCHEMA, "checksum": checksum(plain), **content})
        temporary.write_text(text, encoding="utf-8")


def read_document(path: Path) -> dict[str, Any]:
    """Read a file that :func:`write_document` wrote; return its content without schema version and checksum.

    Raises
    ------
    InvalidInput
        If the file is damaged, was changed by hand, or was written by another version of fedtaco.
    """
    with reading_run(path):
        content = _parse(path, read_bounded(path))
        if not isinstance(content, dict):
            raise ValueError("it does not consist of named entries")
        schema = content.pop("schema", None)
        if schema != SCHEMA:
            raise InvalidInput(
                f"{path} was written by another version of fedtaco (schema {schema}, not {SCHEMA}); "
                "run it again with this version (overwrite), or read it with that one."
            )
        if content.pop("checksum", None) != checksum(content):
            raise changed()
        return content


def checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the entries of a file, whatever their order and format.

    >>> checksum({"rounds": 3, "seed": 0}) == checksum({"seed": 0, "rounds": 3})
    True
    """
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def read_bounded(path: Path) -> str:
    """Read a text file; raise ValueError if it is not a regular file or too large."""
    require_file(path)
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    return content.decode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it contains {name}")


STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
"""Reads JSON without NaN and Infinity."""


def _parse(path: Path, text: str) -> Any:
    return parse_toml(text) if path.suffix == ".toml" else STRICT_JSON.decode(text)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError if it is not valid, or could take too much memory."""
    if len(text) > MAX_TOML_BYTES or any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise ValueError("it is too long, or has too many dots in a line")
    return tomllib.loads(text)


def _format(path: Path, content: Mapping[str, Any]) -> str:
    if path.suffix == ".toml":
        return tomli_w.dumps(content)
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
