"""Read numeric arrays from MATLAB 5 files, the format of SVHN.

``scipy.io`` is not used: version 1.17 crashes with a segmentation fault if an array's type is an unknown number.
"""

import struct
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedtaco.data.published_files import inflate

HEADER_SIZE = 128
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
"""NumPy's names of the numeric types in which an array can be stored."""
NUMERIC_CLASSES = range(6, 16)
COMPLEX_FLAG = 0x0800
MAX_DIMENSIONS = 4


class Element(NamedTuple):
    """A part of the file: the number of its type, and its data."""

    kind: int
    data: memoryview


def read_arrays(content: bytes, names: Collection[str], limit: int) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in a MATLAB 5 file.

    Parameters
    ----------
    content : bytes
        The file.
    names : collection of str
        Names of the arrays; the file must contain no others.
    limit : int
        Maximum number of bytes of one array, including its header.

    Returns
    -------
    dict
        The arrays by name.

    Raises
    ------
    ValueError, struct.error or zlib.error
        If the file is damaged, or contains anything but real arrays with these names.
    """
    if content[HEADER_SIZE - 4 : HEADER_SIZE] != b"\x00\x01IM":
        raise ValueError("it is not a MATLAB 5 file in little-endian byte order")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for element in _elements(memoryview(content)[HEADER_SIZE:]):
        name, array = _read_matrix(_inflated(element, limit))
        if name not in names or name in arrays:
            raise ValueError(f"it contains the array '{name}'")
        arrays[name] = array
    if missing := set(names) - set(arrays):
        raise ValueError(f"it lacks the array '{min(missing)}'")
    return arrays


def _inflated(element: Element, limit: int) -> Element:
    """Return the element that a compressed element consists of; other elements are returned unchanged."""
    if element.kind != COMPRESSED:
        return element
    parts = list(islice(_elements(memoryview(inflate(element.data, limit))), 2))
    if len(parts) != 1:
        raise ValueError("a compressed part does not contain one array")
    return parts[0]


def _read_matrix(matrix: Element) -> tuple[str, npt.NDArray[Any]]:
    """Return the name and the values of an array, which consists of four elements: flags, shape, name and values."""
    parts = list(islice(_elements(matrix.data), 5)) if matrix.kind == MATRIX else []
    kinds = [part.kind for part in parts]
    if len(parts) != 4 or kinds[:3] != [UINT32, INT32, INT8] or kinds[3] not in NUMBERS:
        raise ValueError("it contains something other than numeric arrays")
    (flags,) = struct.unpack_from("<I", parts[0].data)
    if flags & 0xFF not in NUMERIC_CLASSES or flags & COMPLEX_FLAG:
        raise ValueError("it contains an array that is not numeric and real")
    shape = np.frombuffer(parts[1].data, "<i4").tolist()
    if len(shape) > MAX_DIMENSIONS or min(shape, default=-1) < 0:
        raise ValueError("it contains an array without a valid shape")
    values = np.frombuffer(parts[3].data, NUMBERS[kinds[3]])
    return bytes(parts[2].data).decode("ascii"), values.reshape(shape, order="F")


def _elements(content: memoryview) -> Iterator[Element]:
    """Yield the elements that follow each other in ``content``."""
    position = 0
    while position < len(content):
        kind, size = struct.unpack_from("<II", content, position)
        position += 8
        if kind >> 16:  # a short element: its type and size share four bytes, and the next four are its data
            kind, size, position = kind & 0xFFFF, kind >> 16, position - 4
        if position + size > len(content):
            raise ValueError("it ends too early")
        yield Element(kind, content[position : position + size])
        position += size
        if kind not in (MATRIX, COMPRESSED):
            position += -position % 8
