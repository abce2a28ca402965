"""MATLAB files: those of MATLAB and SciPy are read, and damaged or hostile ones are refused."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from published import write_svhn
from refusal import HTML, as_cases, check_refused
from scipy.io import loadmat, savemat

from fedtaco.data.sources.matlab import read_arrays
from fedtaco.data.sources.svhn import read_digits

MATLAB = "a MATLAB file with 'X'"
HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 10), dtype=np.uint8)
Y = np.arange(1, 11)[:, None]


def element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(name, shape, data, kind=2, flags=9, end=b""):
    """Return an array as MATLAB writes it: flags, shape, name and values of the type ``kind``."""
    sizes = element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, element(6, struct.pack("<II", flags, 0)) + sizes + element(1, name) + element(kind, data) + end)


def compressed(content):
    content = zlib.compress(content)
    return struct.pack("<II", 15, len(content)) + content


def saved(do_compression=False, **arrays):
    buffer = io.BytesIO()
    savemat(buffer, {"X": X, "y": Y} | arrays, do_compression=do_compression)
    return buffer.getvalue()


IMAGES = matrix(b"X", (32, 32, 3, 10), X.tobytes("F"))
LABELS = matrix(b"y", (10, 1), Y.astype("<f8").tobytes(), kind=9, flags=6)
WHOLE = {
    "as SciPy writes it": saved(),
    "as SciPy compresses it": saved(do_compression=True),
    "as MATLAB writes it": HEADER + IMAGES + LABELS,
    "as MATLAB compresses it": HEADER + compressed(IMAGES) + compressed(LABELS),
    "labels first": HEADER + compressed(LABELS) + IMAGES,
    "doubles stored as bytes": HEADER + IMAGES + matrix(b"y", (10, 1), bytes(range(1, 11)), flags=6),
}
DAMAGES = {
    "empty": (b"", MATLAB),
    "HTML page": (HTML, "not a MATLAB 5 file"),
    "MATLAB 4": (struct.pack("<5i", 0, 1, 1, 0, 2) + b"X\0" + bytes(200), "not a MATLAB 5 file"),
    "MATLAB 7.3": (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n", "not a MATLAB 5 file"),
    "another byte order": (HEADER[:124] + b"\x01\x00MI" + IMAGES, "not a MATLAB 5 file"),
    "header only": (HEADER, "it lacks the array 'X'"),
    "cut in a tag": (HEADER + IMAGES[:5], MATLAB),
    "cut in the images": (HEADER + IMAGES[:5000], "it ends too early"),
    "cut in a compressed array": (HEADER + compressed(IMAGES)[:5000], "it ends too early"),
    "no labels": (HEADER + IMAGES, "it lacks the array 'y'"),
    "a third array": (saved(z=X), "it contains the array 'z'"),
    "images twice": (HEADER + IMAGES + IMAGES, "it contains the array 'X'"),
    "terminal escapes in a name": (HEADER + matrix(b"\x1b[2J", (1, 1), b"1"), r"it contains the array ' \[2J'"),
    "a name that is not ASCII": (HEADER + matrix(b"\xff", (1, 1), b"1"), MATLAB),
    "a zlib bomb": (HEADER + compressed(bytes(1 << 22)), "content has more than"),
    "a wrong checksum": (HEADER + compressed(IMAGES)[:-4] + b"1234" + LABELS, MATLAB),
    "not zlib": (HEADER + element(15, b"1234567"), MATLAB),
    "compressed twice": (HEADER + compressed(compressed(IMAGES)) + LABELS, "something other than numeric arrays"),
    "two compressed arrays in one": (HEADER + compressed(IMAGES + LABELS), MATLAB),
    "a number instead of an array": (HEADER + element(5, bytes(8)), "something other than numeric arrays"),
    "an array without content": (HEADER + element(14, b""), MATLAB),
    "an array without values": (HEADER + element(14, IMAGES[8:40]), MATLAB),
    "more than four parts": (HEADER + matrix(b"X", (1, 1), b"1", end=element(2, b"1")), MATLAB),
    "a size beyond the file": (HEADER + struct.pack("<II", 14, 2**32 - 1) + IMAGES, "it ends too early"),
    "a short element beyond the file": (HEADER + struct.pack("<I", 0xFFFF0002), MATLAB),
    "complex numbers": (HEADER + matrix(b"X", (1, 1), b"1", flags=0x0809), "not numeric and real"),
    "text": (saved(X="text"), "something other than numeric arrays"),
    "cells": (saved(X=np.array([[1, "a"]], object)), "something other than numeric arrays"),
    "structures": (saved(X={"a": 1}), MATLAB),
    "a sparse matrix": (HEADER + matrix(b"X", (1, 1), b"1", flags=5), "not numeric and real"),
    "an unknown type": (HEADER + matrix(b"X", (1, 1), b"1", kind=99), "something other than numeric arrays"),
    "a negative size": (HEADER + matrix(b"X", (-1, 1), b"1"), "an array without a valid shape"),
    "no sizes": (HEADER + matrix(b"X", (), b"1"), "an array without a valid shape"),
    "1000 sizes": (HEADER + matrix(b"X", (2**31 - 1,) * 1000, b"1"), "an array without a valid shape"),
    "sizes that overflow": (HEADER + matrix(b"X", (2**31 - 1,) * 4, b"1"), MATLAB),
    "values that are cut": (HEADER + matrix(b"y", (1, 1), b"123", kind=9), MATLAB),
    "floating-point images": (saved(X=X.astype(float)), "X is float64"),
    "images of another size": (saved(X=X[:16]), r"X is uint8 \(16, 32, 3, 10\)"),
    "images of two dimensions": (saved(X=X[0, 0]), r"X is uint8 \(3, 10\)"),
    "fewer labels than images": (saved(y=Y[:9]), r"y is \(9, 1\)"),
    "labels in a row": (saved(y=Y.T), r"y is \(1, 10\)"),
    "the label 0": (saved(y=Y - 1), "a label is not a whole number from 1 to 10"),
    "the label 11": (saved(y=Y + 1), "a label is not a whole number from 1 to 10"),
    "the label 1.5": (saved(y=Y * 1.5), "a label is not a whole number from 1 to 10"),
    "labels that are not numbers": (saved(y=Y * np.nan), "a label is not a whole number from 1 to 10"),
    "more images than published": (saved(X=np.tile(X, 400), y=np.tile(Y, (400, 1))), "more than"),
}


@pytest.mark.parametrize("content", WHOLE.values(), ids=WHOLE)
def test_whole_files_give_what_scipy_gives(tmp_path, content):
    expected = loadmat(io.BytesIO(content))
    arrays = read_arrays(content, ("X", "y"), 100_000)
    assert np.array_equal(arrays["X"], expected["X"])
    assert np.array_equal(arrays["y"], expected["y"])
    (tmp_path / "train.mat").write_bytes(content)
    split = read_digits(tmp_path / "train.mat", 10)
    assert np.array_equal(split.x, X.transpose(3, 2, 0, 1))
    assert split.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


@pytest.mark.parametrize(("content", "words"), as_cases(DAMAGES))
def test_a_damaged_file_is_refused(tmp_path, set_counts, content, words):
    set_counts("svhn", 10, 5)
    write_svhn(tmp_path / "svhn", 10, 5)
    file = tmp_path / "svhn" / "train_32x32.mat"
    file.write_bytes(content)
    check_refused("svhn", tmp_path, words, file)
