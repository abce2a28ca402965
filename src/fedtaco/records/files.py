"""Atomic writing of files, and errors for damaged files and failing disks."""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from fedtaco.errors import InvalidInput

SCHEMA = 2
"""Version of the layout of run folders."""
UNREADABLE = (ValueError, TypeError, KeyError, IndexError, AttributeError, OSError, zipfile.BadZipFile, SafetensorError)
"""Errors that reading a damaged file may raise."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` once it is completely written."""
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
    """Raise InvalidInput with a one-line explanation if ``path`` cannot be written; ``advice`` follows it."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"Cannot write to {path}: {reason}.{advice}") from error


def writing_run(folder: Path) -> AbstractContextManager[None]:
    """Raise InvalidInput, with advice on how to resume, if a run folder cannot be written."""
    advice = "Finished rounds are kept: free some space, or choose another folder (out), and continue with --resume."
    return writing(folder, f" {advice}")


@contextmanager
def reading(path: Path) -> Iterator[Path]:
    """Raise InvalidInput with a one-line explanation if the file cannot be read."""
    try:
        yield path
    except InvalidInput:
        raise
    except UNREADABLE as error:
        raise InvalidInput(f"{path} is damaged: {reason_of(error)}.") from error


def reason_of(error: Exception) -> str:
    """Return what is wrong with a damaged file, in a few words."""
    return f"it lacks {error.args[0]}" if isinstance(error, KeyError) else str(error)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as temporary:
        text = json.dumps({"schema": SCHEMA, **content}, indent=2, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def append_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a file of JSON lines; if the disk is full, remove what was written of them."""
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
    """Read a file of JSON lines, without a last line that a crash cut off."""
    if not path.is_file():
        return []
    with reading(path):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return [{name: value for name, value in row.items() if name != "schema"} for row in rows]
