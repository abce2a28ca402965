"""Write files atomically, turn errors of damaged files and full disks into InvalidInput, and find presets."""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import resources
from pathlib import Path

from safetensors import SafetensorError

from fedtaco.errors import InvalidInput
from fedtaco.printable import printable

SCHEMA = 6
"""Version of the layout of run folders."""
UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, OSError, EOFError),
    *(MemoryError, RuntimeError, struct.error, zlib.error, zipfile.BadZipFile, SafetensorError),
)
"""Errors that reading a damaged file may raise."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` once it is completely written."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)  # so that it is never written through a link
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, advice: str = "") -> Iterator[None]:
    """Raise InvalidInput with a one-line explanation if ``path`` cannot be written; append ``advice`` to it."""
    try:
        yield
    except (OSError, RecursionError, SafetensorError) as error:  # pathlib recurses into missing parents
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"Cannot write to {path}: {reason}.{advice}") from error


def writing_run(folder: Path) -> AbstractContextManager[None]:
    """Raise InvalidInput, with advice on how to resume, if a run folder cannot be written."""
    advice = "Finished rounds are kept: free some space, or choose another folder (out), and continue it (resume)."
    return writing(folder, f" {advice}")


@contextmanager
def reading(path: Path, advice: str = "", problem: str = "is damaged") -> Iterator[Path]:
    """Raise InvalidInput with a one-line explanation if the file ``path`` cannot be read; append ``advice`` to it.

    For a file that users write, ``problem`` should be "is not valid".
    """
    try:
        yield path
    except InvalidInput:
        raise
    except UNREADABLE as error:
        raise InvalidInput(f"{path} {problem}: {reason_of(error)}{advice}.") from error


def reading_run(path: Path) -> AbstractContextManager[Path]:
    """Raise InvalidInput, with advice on what to do, if a file of a run folder cannot be read."""
    return reading(path, "; restore it from a copy, or start the run again (overwrite)")


def reason_of(error: Exception) -> str:
    """Describe in a few words what is wrong with a damaged file."""
    reason = f"it lacks {error.args[0]}" if isinstance(error, KeyError) and error.args else str(error)
    return printable(reason or type(error).__name__)


def packaged_presets(package: str) -> list[str]:
    """Return the names of the TOML files that a package contains, without their suffix."""
    found = (path.name for path in resources.files(package).iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def read_packaged_preset(package: str, name: str) -> str:
    """Return the text of one of the TOML files that a package contains."""
    return resources.files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8")
