"""Write small files in the formats in which the datasets were published."""

from __future__ import annotations

import gzip
import json
import pickle
import struct

import numpy as np
from scipy.io import savemat


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


def write_mnist(folder, train, test, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("t10k", test)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", rng.integers(0, 256, (count, 28, 28)))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.arange(count) % 10)


def cifar100_record(count, seed=0):
    return {
        b"data": np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8),
        b"fine_labels": [i % 100 for i in range(count)],
        b"coarse_labels": [i % 20 for i in range(count)],
        b"filenames": [b"image_s_%06d.png" % i for i in range(count)],
    }


def write_cifar100(folder, train, test, seed=0):
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        (folder / part).write_bytes(pickle.dumps(cifar100_record(count, seed), protocol=2))


def python2_pickle(record):
    """Pickle a record with the instructions of Python 2's protocol 2, in which the files were published."""
    memo = iter(range(1, 1 << 20))

    def put():
        index = next(memo)
        return b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)

    def string(text):
        short = len(text) < 256
        return (b"U" + bytes([len(text)]) if short else b"T" + struct.pack("<i", len(text))) + text + put()

    def number(value):
        return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)

    def array(values):
        head = b"cnumpy.core.multiarray\n_reconstruct\n" + put() + b"cnumpy\nndarray\n" + put()
        shape = b"K\x00\x85U\x01b\x87R" + put() + b"(K\x01" + b"".join(map(number, values.shape)) + b"\x86"
        dtype = b"cnumpy\ndtype\n" + put() + b"U\x02u1K\x00K\x01\x87R" + put()
        state = b"(K\x03U\x01|NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
        return head + shape + dtype + state + b"\x89T" + struct.pack("<i", values.size) + values.tobytes() + b"tb"

    def value(item):
        if isinstance(item, list):
            return b"]" + put() + b"(" + b"".join(map(value, item)) + b"e"
        return {bytes: string, int: number, np.ndarray: array}[type(item)](item)

    items = [string(key) + value(item) for key, item in record.items()]
    return b"\x80\x02}q\x00(" + b"".join(items) + b"u."


def write_svhn(folder, train, test, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        images = rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        savemat(folder / f"{part}_32x32.mat", {"X": images, "y": (np.arange(count) % 10 + 1)[:, None].astype(np.uint8)})


ADULT_CATEGORIES = {1: 8, 3: 16, 5: 7, 6: 14, 7: 6, 8: 5, 9: 2, 13: 41}
"""Number of categories in each categorical column of adult."""


def adult_text(count):
    """Return a table that has all 99 categories and unknown entries in the three columns that have them."""
    lines = []
    for row in range(count):
        cells = [str(row * 7 % 97)] * 15
        for column, categories in ADULT_CATEGORIES.items():
            kind = row % (categories + (column in (1, 6, 13)))
            cells[column] = "?" if kind == categories else f"kind-{kind}"
        cells[14] = ">50K" if row % 4 == 0 else "<=50K"
        lines.append(", ".join(cells))
    return "\n".join(lines) + "\n"


def write_adult(folder, train, test):
    folder.mkdir(parents=True)
    (folder / "adult.data").write_text(adult_text(train))
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + adult_text(test).replace("50K\n", "50K.\n"))


def write_leaf(folder, users):
    """Write one of LEAF's JSON files; ``users`` maps names to pairs (x, y)."""
    folder.mkdir(parents=True)
    record = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    (folder / "all_data.json").write_text(json.dumps(record))
