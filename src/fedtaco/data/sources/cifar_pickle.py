"""Read the pickled records of CIFAR as data: nothing is unpickled, imported or called.

A pickle is a program for a small stack machine. This reader knows the instructions with which Python 2 wrote the
published files and with which Python 3 (protocols 2 to 5) writes the same records: dictionaries of arrays of bytes,
lists, strings and numbers. Names that occur in them, such as ``numpy.dtype``, are only compared with the expected ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PROTOCOLS = range(2, 6)
MAX_NAME_LENGTH = 100
"""Maximum number of characters in a key or in the name of a class or function."""


@dataclass(frozen=True)
class GlobalName:
    """The name of a class or function, as written in the pickle."""

    module: str
    name: str


class ByteType:
    """The dtype of unsigned bytes, the only one that a record may contain."""

    def set_state(self, state: object) -> None:
        """Check that the state is the one that NumPy writes for this dtype."""
        match state:
            case (3, "|" | b"|", None, None, None, -1, -1, 0):
                return
        raise ValueError("it contains a dtype other than unsigned bytes")


@dataclass
class ByteArray:
    """A matrix of unsigned bytes, which is empty until its state is set."""

    rows: int = 0
    columns: int = 0
    content: bytes = b""
    is_fortran: bool = False

    def set_state(self, state: object) -> None:
        """Set shape, order and content."""
        match state:
            case (1, (int() as rows, int() as columns), ByteType(), 0 | 1 as is_fortran, bytes() as content):
                self.rows, self.columns, self.content, self.is_fortran = rows, columns, content, bool(is_fortran)
            case _:
                raise ValueError("it contains an array other than a matrix of unsigned bytes")

    def to_numpy(self) -> npt.NDArray[np.uint8]:
        """Return the array; raise ValueError if its shape does not fit its content."""
        if self.rows < 0 or self.columns < 0 or self.rows * self.columns != len(self.content):
            raise ValueError(f"the shape of an array does not fit its {len(self.content):,} bytes")
        flat = np.frombuffer(self.content, np.uint8)
        return flat.reshape((self.rows, self.columns), order="F" if self.is_fortran else "C")


def read_record(content: bytes, max_instructions: int) -> dict[str, Any]:
    """Return the dictionary in a pickle.

    Parameters
    ----------
    content : bytes
        The pickle.
    max_instructions : int
        Bound on the number of instructions, and thereby on the number of values.

    Returns
    -------
    dict
        The values by key. Arrays are :class:`ByteArray` objects; Python 2's strings are bytes, except for keys.

    Raises
    ------
    ValueError, LookupError or TypeError
        If the pickle is damaged, or contains anything but plain data and arrays of bytes.

    Examples
    --------
    >>> read_record(b"\\x80\\x02}U\\x06labels]K\\x07as.", max_instructions=10)
    {'labels': [7]}
    """
    machine = _StackMachine(content)
    if machine.take(1) != b"\x80" or machine.number(1) not in PROTOCOLS:
        raise ValueError("it is not a pickle of protocol 2 to 5")
    for _ in range(max_instructions):
        instruction = machine.take(1)
        if instruction == b".":
            record: dict[str, Any] = machine.top(dict)
            return record
        if instruction in _VALUES:
            machine.stack.append(_VALUES[instruction](machine))
        elif instruction in _CHANGES:
            _CHANGES[instruction](machine)
        else:
            raise ValueError(f"it contains the instruction {instruction!r}, which is not needed for data")
    raise ValueError(f"it has more than {max_instructions:,} instructions")


class _StackMachine:
    """The state of a pickle that is being read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.encoded = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        start, self.position = self.position, self.position + count
        if self.position > len(self.content):
            raise ValueError("it ends too early")
        return self.content[start : self.position]

    def number(self, size: int, signed: bool = False) -> int:
        """Return the number in the next ``size`` bytes."""
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> str:
        """Return the text up to the next line break."""
        end = self.content.index(b"\n", self.position, self.position + MAX_NAME_LENGTH)
        return self.take(end + 1 - self.position)[:-1].decode()

    def top(self, kind: type[Any]) -> Any:
        """Return the value on top of the stack, which must be of this type."""
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"it contains a {type(self.stack[-1]).__name__} instead of a {kind.__name__}")
        return self.stack[-1]

    def pop(self, count: int) -> tuple[object, ...]:
        """Remove the topmost values from the stack and return them."""
        if len(self.stack) < count:
            raise ValueError("it uses more values than it contains")
        return self._cut(len(self.stack) - count)

    def pop_to_mark(self) -> tuple[object, ...]:
        """Remove the values above the last mark from the stack and return them."""
        return self._cut(self.marks.pop())

    def _cut(self, position: int) -> tuple[object, ...]:
        values = tuple(self.stack[position:])
        del self.stack[position:]
        return values

    def extend_list(self, values: tuple[object, ...]) -> None:
        self.top(list).extend(values)

    def update_dict(self, values: tuple[object, ...]) -> None:
        self.top(dict).update(zip(map(_text, values[::2]), values[1::2], strict=True))

    def remember(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def set_state(self) -> None:
        (state,) = self.pop(1)
        if not isinstance(self.stack[-1], ByteType | ByteArray):
            raise ValueError("it sets the state of something other than an array")
        self.stack[-1].set_state(state)

    def skip_frame_header(self) -> None:
        self.take(8)

    def construct(self, function: object, arguments: object) -> object:
        """Return what a call would return, for the few calls with which arrays and bytes are written."""
        match function, arguments:
            case GlobalName("_codecs", "encode"), (str() as text, "latin1"):
                return self.encode(text)
            case GlobalName("__builtin__", "bytes"), ():
                return b""
            case GlobalName("numpy", "dtype"), ("u1" | b"u1", 0, 1):
                return ByteType()
            case (
                GlobalName("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct"),
                (GlobalName("numpy", "ndarray"), (0,), b"b"),
            ):
                return ByteArray()
            case (
                GlobalName("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer"),
                (bytes() as content, ByteType(), (int() as rows, int() as columns), "C" | "F" as order),
            ):
                return ByteArray(rows, columns, content, order == "F")
            case GlobalName(module, name), _:
                raise ValueError(f"it contains a call of {module}.{name}, which is not data")
        raise ValueError("it contains a call of something that is not a function")

    def encode(self, text: str) -> bytes:
        """Return the bytes that are written as text; together they cannot be longer than the pickle."""
        self.encoded += len(text)
        if self.encoded > len(self.content):
            raise ValueError("it expands to more bytes than it contains")
        return text.encode("latin-1")


def _text(value: object) -> str:
    """Return a key or a name as a string; Python 2 wrote it as bytes."""
    if not isinstance(value, str | bytes) or len(value) > MAX_NAME_LENGTH:
        raise ValueError("it contains a key or a name that is not a short string")
    return value if isinstance(value, str) else value.decode("latin-1")


def _global_name(module: object, name: object) -> GlobalName:
    return GlobalName(_text(module), _text(name))


_VALUES: dict[bytes, Callable[[_StackMachine], object]] = {
    b"N": lambda _: None,
    b"\x88": lambda _: True,
    b"\x89": lambda _: False,
    b"K": lambda machine: machine.number(1),
    b"M": lambda machine: machine.number(2),
    b"J": lambda machine: machine.number(4, signed=True),
    b"\x8a": lambda machine: machine.number(machine.number(1), signed=True),
    b"U": lambda machine: machine.take(machine.number(1)),
    b"T": lambda machine: machine.take(machine.number(4)),
    b"C": lambda machine: machine.take(machine.number(1)),
    b"B": lambda machine: machine.take(machine.number(4)),
    b"\x8e": lambda machine: machine.take(machine.number(8)),
    b"\x96": lambda machine: machine.take(machine.number(8)),
    b"X": lambda machine: machine.take(machine.number(4)).decode(),
    b"\x8c": lambda machine: machine.take(machine.number(1)).decode(),
    b"\x8d": lambda machine: machine.take(machine.number(8)).decode(),
    b"}": lambda _: {},
    b"]": lambda _: [],
    b")": lambda _: (),
    b"\x85": lambda machine: machine.pop(1),
    b"\x86": lambda machine: machine.pop(2),
    b"\x87": lambda machine: machine.pop(3),
    b"t": lambda machine: machine.pop_to_mark(),
    b"c": lambda machine: _global_name(machine.line(), machine.line()),
    b"\x93": lambda machine: _global_name(*machine.pop(2)),
    b"R": lambda machine: machine.construct(*machine.pop(2)),
    b"h": lambda machine: machine.memo[machine.number(1)],
    b"j": lambda machine: machine.memo[machine.number(4)],
}
"""Instructions that push one value onto the stack: constants, numbers, strings, containers, names, calls, the memo."""

_CHANGES: dict[bytes, Callable[[_StackMachine], None]] = {
    b"(": lambda machine: machine.marks.append(len(machine.stack)),
    b"a": lambda machine: machine.extend_list(machine.pop(1)),
    b"e": lambda machine: machine.extend_list(machine.pop_to_mark()),
    b"s": lambda machine: machine.update_dict(machine.pop(2)),
    b"u": lambda machine: machine.update_dict(machine.pop_to_mark()),
    b"b": lambda machine: machine.set_state(),
    b"q": lambda machine: machine.remember(machine.number(1)),
    b"r": lambda machine: machine.remember(machine.number(4)),
    b"\x94": lambda machine: machine.remember(len(machine.memo)),
    b"\x95": lambda machine: machine.skip_frame_header(),
}
"""Instructions that change a container, an array, the memo or the marks."""
