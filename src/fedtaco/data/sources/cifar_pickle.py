"""Read the pickled records of CIFAR as data: nothing is unpickled, imported or called.

A pickle is a program for a small stack machine. ``pickletools`` of the standard library splits it into instructions
without running them. This reader follows those with which Python 2 wrote the published files and with which Python 3
(protocols 2 to 5) writes the same records: dictionaries of arrays of bytes, lists, strings and numbers. Calls are not
made; their descriptions are compared with those of arrays of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pickletools import OpcodeInfo, genops, markobject, stackslice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

PROTOCOLS = range(2, 6)
MAX_NAME_LENGTH = 100
"""Maximum number of characters in a key or in the name of a class or function."""


@dataclass
class Call:
    """The description of a call: the name of the function, its arguments, and the state that its result is given."""

    function: str
    arguments: object
    state: object = None


UNSIGNED_BYTES = Call("numpy.dtype", ("u1", 0, 1), (3, "|", None, None, None, -1, -1, 0))
"""The dtype of unsigned bytes, the only one that a record may contain."""


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
        The values by key. Bytes are strings of the characters 0 to 255, and arrays are :class:`Call` objects.

    Raises
    ------
    ValueError, LookupError or TypeError
        If the pickle is damaged, or contains anything but plain data and calls.

    Examples
    --------
    >>> read_record(b"\\x80\\x02}U\\x06labels]K\\x07as.", max_instructions=10)
    {'labels': [7]}
    """
    argument: Any
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, object] = {}
    for count, (opcode, argument, _) in enumerate(genops(content)):
        if count == 0 and (opcode.name != "PROTO" or argument not in PROTOCOLS):
            raise ValueError("it is not a pickle of protocol 2 to 5")
        if count == max_instructions:
            raise ValueError(f"it has more than {max_instructions:,} instructions")
        if opcode.name == "MARK":
            marks.append(len(stack))
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif opcode.name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif opcode.name == "GLOBAL":
            stack.append(_name(argument.replace(" ", ".")))
        elif opcode.name in _CONSTANTS:
            stack.append(argument.decode("latin-1") if isinstance(argument, bytes | bytearray) else argument)
        elif opcode.name in _RESULTS:
            stack.append(_RESULTS[opcode.name](*_take(opcode, stack, marks)))
        elif opcode.name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it contains the instruction {opcode.name}, which is not needed for data")
    record: dict[str, Any] = _require(dict, stack[-1])
    return record


def to_matrix(value: object) -> npt.NDArray[np.uint8]:
    """Return the matrix of unsigned bytes that a call describes; raise ValueError or TypeError if it is none."""
    match value:
        case Call(
            "numpy.core.multiarray._reconstruct", _, (1, (int(rows), int(columns)), dtype, fortran, str(content))
        ):
            order: Literal["C", "F"] = "F" if fortran else "C"
        case Call(
            "numpy.core.numeric._frombuffer", (str(content), dtype, (int(rows), int(columns)), "C" | "F" as order)
        ):
            pass
        case Call(function):
            raise ValueError(f"it contains a call of {function}, which is not a matrix of unsigned bytes")
        case _:
            raise TypeError("'data' is not an array")
    if dtype != UNSIGNED_BYTES:
        raise ValueError("it contains an array other than a matrix of unsigned bytes")
    if rows * columns != len(content):
        raise ValueError(f"the shape of an array does not fit its {len(content):,} bytes")
    return np.frombuffer(content.encode("latin-1"), np.uint8).reshape((rows, columns), order=order)


def _take(opcode: OpcodeInfo, stack: list[Any], marks: list[int]) -> list[Any]:
    """Remove from the stack what an instruction takes, and return it."""
    start = marks.pop() if markobject in opcode.stack_before else len(stack)
    start -= sum(kind not in (markobject, stackslice) for kind in opcode.stack_before)
    if start < 0:
        raise ValueError("it uses more values than it contains")
    taken = stack[start:]
    del stack[start:]
    return taken


def _require(kind: type[Any], value: object) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"it contains a {type(value).__name__} instead of a {kind.__name__}")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_NAME_LENGTH:
        raise ValueError("it contains a key or a name that is not a short string")
    return value


def _extend(items: object, *values: object) -> object:
    _require(list, items).extend(values)
    return items


def _update(record: object, *values: object) -> object:
    _require(dict, record).update(zip(map(_name, values[::2]), values[1::2], strict=True))
    return record


def _describe_call(function: object, arguments: object) -> object:
    """Return the description of a call; of the one with which Python 3 writes bytes in protocol 2, the bytes."""
    match function, arguments:
        case "_codecs.encode", (str(text), "latin1"):
            return text
    return Call(_name(function).replace("numpy._core.", "numpy.core."), arguments)  # NumPy 2 renamed the package


def _set_state(call: object, state: object) -> object:
    _require(Call, call).state = state
    return call


_CONSTANTS = {
    *("NONE", "BININT", "BININT1", "BININT2", "LONG1"),
    *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
"""Instructions whose argument is the value that they push onto the stack."""

_RESULTS: dict[str, Callable[..., object]] = {
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    **dict.fromkeys(("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), lambda *values: values),
    "APPEND": _extend,
    "APPENDS": _extend,
    "SETITEM": _update,
    "SETITEMS": _update,
    "STACK_GLOBAL": lambda module, name: f"{_name(module)}.{_name(name)}",
    "REDUCE": _describe_call,
    "BUILD": _set_state,
}
"""Instructions that push the result of a function of what they take from the stack."""
