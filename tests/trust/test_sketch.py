"""Sketches: short stand-ins for long vectors."""

from __future__ import annotations

import numpy as np
import torch

from fedtaco.trust.sketch import MAX_SIZE, sketch


def test_a_sketch_is_linear_and_keeps_angles():
    rows = torch.randn(4, 50_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[1] += rows[0]
    short = sketch(rows)
    assert short.shape == (4, MAX_SIZE)
    torch.testing.assert_close(short[0] + 3 * short[2], sketch((rows[0] + 3 * rows[2])[None])[0])
    true, seen = (np.corrcoef(x.numpy()) for x in (rows, short))
    assert abs(true - seen).max() < 4 / MAX_SIZE**0.5


def test_the_same_sketch_in_every_process_and_type():
    row = torch.arange(20_000.0)[None]
    torch.testing.assert_close(sketch(row), sketch(row.double()).float(), rtol=1e-4, atol=1e-2)
    signs = [float(sketch(one_at(place, 20_000))[0, 5]) for place in range(5, 20_000, MAX_SIZE)]
    assert set(signs) <= {-1.0, 1.0}
    assert sketch(row)[0, 5] == sum(sign * place for sign, place in zip(signs, range(5, 20_000, MAX_SIZE), strict=True))


def one_at(place, length):
    row = torch.zeros(1, length)
    row[0, place] = 1
    return row
