"""Files that are whole or not there, and what to say when a disk fails."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedtaco.errors import InvalidInput

SCHEMA = 1
UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OSError,
    zipfile.BadZipFile,
    SafetensorError,
)
"""What reading a damaged file may raise."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that takes the place of ``path`` once it is whole."""
    temporary = path.with_name(path.name + ".part")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, advice: str = "") -> Iterator[None]:
    """A disk that is full, or a folder that cannot be written, is told in a sentence."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"Cannot write to {path}: {reason}.{advice}") from error


def storage(folder: Path) -> AbstractContextManager[None]:
    """Writing what a run goes on from."""
    kept = "What was finished is kept: make room, or choose another folder (out), and go on with --resume."
    return writing(folder, f" {kept}")


@contextmanager
def reading(path: Path) -> Iterator[Path]:
    """A file that cannot be read is told in a sentence."""
    try:
        yield path
    except InvalidInput:
        raise
    except UNREADABLE as error:
        raise InvalidInput(f"{path} is damaged: {reason_of(error)}.") from error


def reason_of(error: Exception) -> str:
    return f"it lacks {error.args[0]}" if isinstance(error, KeyError) else str(error)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as temporary:
        text = json.dumps({"schema": SCHEMA, **content}, indent=2, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def append_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a file of JSON lines; what a full disk cuts off is taken back."""
    left = memoryview("".join(json_line(row) for row in rows).encode())
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            os.truncate(path, before)
            raise


def json_line(row: Mapping[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, **row}, allow_nan=False) + "\n"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; one that a crash cut off is left out."""
    if not path.is_file():
        return []
    with reading(path):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [{name: value for name, value in row.items() if name != "schema"} for row in rows]
