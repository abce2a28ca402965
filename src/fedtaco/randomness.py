"""Randomness as a function of (seed, purpose, keys), never of a global generator.

Results therefore do not depend on the engine, on the order of clients or on whether a run was resumed, and
every method sees the same batches.
"""

import zlib

import numpy as np


def _seed_sequence(seed: int, purpose: str, *keys: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *keys])


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Return a new numpy generator; the same arguments always give the same numbers.

    >>> a, b = generator(0, "batches", 3, 1), generator(0, "batches", 3, 1)
    >>> bool(a.integers(1 << 30) == b.integers(1 << 30))
    True
    """
    return np.random.Generator(np.random.Philox(_seed_sequence(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """Return a seed for torch's own generators (initial weights, dropout)."""
    return int(_seed_sequence(seed, purpose, *keys).generate_state(1, np.uint64)[0] >> np.uint64(2))
