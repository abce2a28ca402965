"""Arrays of messages: they arrive unchanged, and are refused by size and declaration before they are decoded."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, RecordDict

from fedtaco.flower import arrays
from fedtaco.flower.arrays import InvalidArrays, read_tensors, to_record


def content(**named):
    return RecordDict({"arrays": ArrayRecord(named)})


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 4),
        torch.ones(5, dtype=torch.float64),
        torch.tensor([True, False]),
        torch.empty(0),
        torch.tensor(7),
    ],
)
def test_tensors_arrive_unchanged(tensor):
    sent = RecordDict({"arrays": to_record({"a": tensor})})
    received = read_tensors(sent, "arrays", tensor.nbytes)["a"]
    assert torch.equal(received, tensor)
    assert received.dtype == tensor.dtype


def test_a_missing_record_is_empty():
    assert read_tensors(RecordDict(), "arrays", 0) == {}


def test_a_record_that_is_too_large_is_refused_before_it_is_decoded(monkeypatch):
    monkeypatch.setattr(arrays, "_read_tensor", lambda array: pytest.fail("the array was decoded"))
    huge = Array(dtype="float64", shape=(15,), stype="numpy.ndarray", data=b"\0" * 50_000)
    with pytest.raises(InvalidArrays, match="arrays has 50,000 bytes instead of at most 120"):
        read_tensors(content(update=huge), "arrays", max_bytes=120)


def test_many_small_arrays_are_too_large_together():
    one = Array(np.zeros(2000))
    with pytest.raises(InvalidArrays, match="instead of at most 16,000"):
        read_tensors(content(a=one, b=one), "arrays", max_bytes=16_000)


def encoded(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "shape", "dtype", "problem"),
    [
        (encoded(np.zeros(3)), (4,), "float64", r"of \(3,\) float64 is declared as \(4,\)"),
        (encoded(np.zeros(3)), (3,), "float32", "is declared as .* float32"),
        (encoded(np.zeros(3)) + b"\0", (3,), "float64", "has 25 bytes"),
        (encoded(np.zeros(3))[:-1], (3,), "float64", "has 23 bytes"),
        (encoded(np.asfortranarray(np.ones((2, 3)))), (2, 3), "float64", "is declared"),
        (encoded(np.zeros(3), (3, 0)), (3,), "float64", "version"),
        (encoded(np.zeros(3, dtype="M8[s]")), (3,), "datetime64[s]", "is declared"),
    ],
)
def test_arrays_must_be_what_they_declare(data, shape, dtype, problem):
    array = Array(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data)
    with pytest.raises(InvalidArrays, match=problem):
        read_tensors(content(a=array), "arrays", max_bytes=1000)
