"""Read files of unknown origin, which may be damaged or made to do harm.

Files are read and decompressed up to a given number of bytes only, and every failure becomes an InvalidInput that names
the file and what was expected of it.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedtaco.errors import InvalidInput
from fedtaco.files import UNREADABLE, reason_of

SLACK = 1 << 20
"""Bytes by which a file may exceed its expected content, for headers and for what compression adds."""


@contextmanager
def expecting(place: str | Path, expected: str, advice: str = "Download the file again.") -> Iterator[None]:
    """Raise InvalidInput that says what was expected of a file or address if it cannot be read."""
    try:
        yield
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(f"{place} cannot be read: {error.strerror or reason_of(error)}.") from error
    except UNREADABLE as error:
        reason = reason_of(error).rstrip(".")
        raise InvalidInput(
            f"{place} is damaged or has the wrong content: expected {expected} ({reason}). {advice}"
        ) from error


def at_most(limit: int, content: bytes) -> bytes:
    """Return ``content``; raise ValueError if it has more than ``limit`` bytes."""
    if len(content) > limit:
        raise ValueError(f"its content has more than {limit:,} bytes")
    return content


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a regular file of at most ``limit`` bytes."""
    if not path.is_file():
        raise ValueError("it is not a regular file")
    size = path.stat().st_size
    if size > limit:
        raise ValueError(f"it has {size:,} bytes, more than {limit:,}")
    with path.open("rb") as file:
        return file.read(size)


def inflate(content: bytes | memoryview, limit: int) -> bytes:
    """Decompress one complete gzip or zlib stream of at most ``limit`` bytes."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: the header tells which of the two formats it is
    inflated = at_most(limit, stream.decompress(content, limit + 1))
    if not stream.eof or stream.unused_data:
        raise ValueError("the compressed data are incomplete or followed by other data")
    return inflated


def unzip(content: bytes, name: str, limit: int) -> bytes:
    """Decompress the file ``name``, of at most ``limit`` bytes, in a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if name not in archive.namelist():
            raise ValueError(f"it does not contain {name}")
        if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed by a method that cannot be read in bounded memory")
        with archive.open(name) as file:
            return at_most(limit, file.read(limit + 1))


def read_json(path: Path, limit: int) -> Any:
    """Read a JSON file of at most ``limit`` bytes; the interpreter's recursion limit bounds its depth."""
    return json.loads(read_bytes(path, limit))


def byte_labels(values: object) -> npt.NDArray[np.uint8]:
    """Return a list of whole numbers from 0 to 255 as an array of bytes."""
    if not isinstance(values, list) or not values or any(type(value) is not int for value in values):
        raise ValueError("the labels are not a list of whole numbers")
    for label in (min(values), max(values)):
        if not 0 <= label <= 255:
            raise ValueError(f"labels must be from 0 to 255, but one is {label}")
    return np.array(values, np.uint8)
