"""Write small files in the formats in which the datasets were published."""

from __future__ import annotations

import gzip
import json
import pickle

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


def write_cifar100(folder, train, test, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        record = {
            b"data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
            b"fine_labels": [i % 100 for i in range(count)],
            b"coarse_labels": [i % 20 for i in range(count)],
            b"filenames": [b"x.png"] * count,
        }
        (folder / part).write_bytes(pickle.dumps(record, protocol=2))


def write_svhn(folder, train, test, seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        images = rng.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        savemat(folder / f"{part}_32x32.mat", {"X": images, "y": (np.arange(count) % 10 + 1)[:, None].astype(np.uint8)})


def write_leaf(folder, users):
    """Write one of LEAF's JSON files; ``users`` maps names to pairs (x, y)."""
    folder.mkdir(parents=True)
    record = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    (folder / "all_data.json").write_text(json.dumps(record))
