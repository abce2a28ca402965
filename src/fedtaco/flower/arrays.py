"""Tensors as records of Flower, and back. What arrives is checked for its size before anything is decoded."""

import copy
import io
from collections.abc import Mapping
from math import prod

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor, nn

from fedtaco.errors import InvalidInput
from fedtaco.methods import NamedTensors

MAX_ARRAYS = 64
"""Maximum number of arrays in a record; methods use one to three."""
MAX_HEADER = 4096
"""Bytes that an encoded array may be larger than its numbers."""


class InvalidArrays(ValueError):
    """Arrays of a message that cannot be read, with the reason as a clause."""


def to_record(named: NamedTensors) -> ArrayRecord:
    """Return named tensors as a record."""
    return ArrayRecord({name: Array(tensor.detach().contiguous().numpy()) for name, tensor in named.items()})


def read_tensors(
    content: RecordDict, name: str, max_bytes: int | None = None, max_arrays: int = MAX_ARRAYS
) -> dict[str, Tensor]:
    """Return the tensors of a record; empty if there is no such record.

    Parameters
    ----------
    content
        The content of a message.
    name
        Name of the record.
    max_bytes
        Maximum number of bytes of all numbers in the record; ``None`` for a record that this process wrote.
    max_arrays
        Maximum number of arrays in the record.

    Raises
    ------
    InvalidArrays
        If the record is larger, or an array is not what it declares; nothing is decoded then.
    """
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        return {}
    if len(record) > max_arrays:
        raise InvalidArrays(f"{name} has {len(record):,} arrays instead of at most {max_arrays}")
    size = sum(len(array.data) for array in record.values())
    if max_bytes is not None and size > max_bytes + MAX_HEADER * len(record):
        raise InvalidArrays(f"{name} has {size:,} bytes instead of at most {max_bytes:,}")
    return {key: _read_tensor(array) for key, array in record.items()}


def wire_bytes(content: Mapping[str, object]) -> int:
    """Return the number of bytes of all arrays in a message, with the header that each of them has."""
    records = (record for record in content.values() if isinstance(record, ArrayRecord))
    return sum(len(array.data) for record in records for array in record.values())


def _read_tensor(array: Array) -> Tensor:
    """Decode an array in numpy's format; its shape and type must be the declared ones, and agree with its length."""
    if array.stype != "numpy.ndarray":
        raise InvalidArrays(f"an array is serialised as {array.stype!r} instead of 'numpy.ndarray'")
    file = io.BytesIO(array.data)
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise InvalidArrays(f"an array has version {version} of numpy's format instead of 1.0 or 2.0")
    shape, is_fortran, dtype = read_header[version](file, max_header_size=MAX_HEADER)
    if tuple(array.shape) != shape or array.dtype != str(dtype) or dtype.kind not in "biuf" or is_fortran:
        raise InvalidArrays(f"an array of {shape} {dtype} is declared as {tuple(array.shape)} {array.dtype}")
    if len(array.data) - file.tell() != prod(shape) * dtype.itemsize:
        raise InvalidArrays(f"an array of {shape} {dtype} has {len(array.data) - file.tell():,} bytes")
    return torch.from_numpy(np.frombuffer(bytearray(array.data), dtype, offset=file.tell()).reshape(shape))


def check_dtypes(module: nn.Module) -> None:
    """Raise InvalidInput if a parameter or buffer has a type that records cannot contain, such as bfloat16."""
    for dtype in {tensor.dtype for tensor in (*module.parameters(), *module.buffers())}:
        try:
            torch.empty(0, dtype=dtype).numpy()
        except TypeError as error:
            raise InvalidInput(
                f"The model contains numbers of the type {dtype}, which Flower cannot send; convert it with "
                "model.float(), on the server and on every node."
            ) from error


def with_weights(model: nn.Module, arrays: ArrayRecord) -> nn.Module:
    """Return a copy of the model with the given weights."""
    module = copy.deepcopy(model)
    try:
        module.load_state_dict(arrays.to_torch_state_dict())
    except RuntimeError as error:
        raise InvalidInput(f"initial_arrays do not fit the model that was passed to FedStrategy: {error}") from error
    return module
