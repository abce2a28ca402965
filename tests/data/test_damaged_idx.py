"""Damaged or hostile IDX files."""

from __future__ import annotations

import gzip
import os
import re

import numpy as np
import pytest
from published import write_mnist
from refusal import HTML, as_cases, check_refused

GZIP = "a complete gzip file"
IDX = "an IDX file of bytes with shape n × 28 × 28"
HEADER = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (10, 28, 28))
PIXELS = np.random.default_rng(0).integers(0, 256, 7840, dtype=np.uint8).tobytes()


def header(*sizes, kind=8):
    return bytes([0, 0, kind, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes)


COMPRESSED = {
    "empty": (lambda whole: b"", GZIP),
    "HTML page": (lambda whole: HTML, GZIP),
    "cut in the gzip header": (lambda whole: whole[:5], GZIP),
    "cut in the middle": (lambda whole: whole[:500], GZIP),
    "cut in the checksum": (lambda whole: whole[:-5], GZIP),
    "wrong checksum": (lambda whole: whole[:-8] + b"\0\0\0\0" + whole[-4:], GZIP),
    "flipped bits": (lambda whole: whole[:200] + bytes([whole[200] ^ 255]) + whole[201:], GZIP),
    "not compressed": (gzip.decompress, GZIP),
    "followed by other data": (lambda whole: whole + b"more", "followed by other data"),
    "two gzip streams": (lambda whole: whole + whole, "followed by other data"),
    "gzip bomb": (lambda whole: gzip.compress(bytes(1 << 22)), "content has more than 7,856 bytes"),
    "gzip bomb behind a valid header": (lambda whole: gzip.compress(HEADER + bytes(1 << 22)), "more than 7,856 bytes"),
    "longer than the published file": (lambda whole: bytes(1 << 21), "it has 2,097,152 bytes, more than"),
}
CONTENT = {
    "empty content": (b"", IDX),
    "cut in the magic number": (b"\0\0\x08", IDX),
    "cut in the shape": (HEADER[:9], IDX),
    "no pixels": (HEADER, "0 bytes follow the header, which announces 10 items"),
    "a pixel too few": (HEADER + PIXELS[:-1], "7,839 bytes follow the header"),
    "another magic number": (b"not an IDX file" + PIXELS[:100], IDX),
    "floating-point type": (header(10, 28, 28, kind=13) + PIXELS, IDX),
    "no dimensions": (header() + PIXELS, IDX),
    "255 dimensions": (header(*[1] * 255) + PIXELS[:1], IDX),
    "one dimension": (header(7848) + PIXELS, IDX),
    "another image size": (header(10, 14, 56) + PIXELS, IDX),
    "sizes that overflow": (header(2**32 - 1, 2**32 - 1, 2**32 - 1), IDX),
    "sizes whose product wraps to zero": (header(2**31, 2**31, 4), IDX),
    "a count that overflows": (header(2**32 - 1, 28, 28) + PIXELS, "which announces 4,294,967,295 items"),
    "no images": (header(0, 28, 28), "holds training inputs of shape (0, 1, 28, 28) and 10 labels"),
    "fewer images than labels": (header(9, 28, 28) + PIXELS[:7056], "(9, 1, 28, 28) and 10 labels"),
    "equal pixels": (HEADER + b"M" * 7840, "the standard deviation of a channel is not between 0 and 1"),
    "black pixels": (HEADER + bytes(7840), "the standard deviation of a channel is not between 0 and 1"),
}


@pytest.fixture
def mnist(tmp_path, set_counts):
    set_counts("mnist", 10, 5)
    write_mnist(tmp_path / "mnist", 10, 5)
    return tmp_path / "mnist"


@pytest.mark.parametrize(("damage", "words"), as_cases(COMPRESSED))
def test_damaged_compression_is_refused(mnist, damage, words):
    images = mnist / "train-images-idx3-ubyte.gz"
    images.write_bytes(damage(images.read_bytes()))
    check_refused("mnist", mnist.parent, words, images)


@pytest.mark.parametrize(("content", "words"), as_cases(CONTENT))
def test_damaged_content_is_refused(mnist, content, words):
    images = mnist / "train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(content))
    check_refused("mnist", mnist.parent, re.escape(words), mnist)


def test_a_label_beyond_the_classes_is_refused(mnist):
    (mnist / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header(5) + bytes([1, 2, 10, 3, 4])))
    check_refused("mnist", mnist.parent, "test labels from 1 to 10; MNIST has the labels 0 to 9", mnist)


@pytest.mark.parametrize("kind", ["folder", "pipe", "huge sparse file"])
def test_what_is_not_a_file_of_a_possible_size_is_not_read(mnist, kind):
    images = mnist / "train-images-idx3-ubyte.gz"
    images.unlink()
    if kind == "folder":
        images.mkdir()
    elif kind == "pipe":
        os.mkfifo(images)
    else:
        with images.open("wb") as file:
            file.truncate(1 << 40)
    words = "it has 1,099,511,627,776 bytes" if kind == "huge sparse file" else "it is not a regular file"
    check_refused("mnist", mnist.parent, words, images)
