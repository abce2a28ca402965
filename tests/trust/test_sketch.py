"""Sketches: short vectors that represent long ones."""

from __future__ import annotations

import numpy as np
import torch

from fedtaco.trust.sketch import MAX_SIZE, sketch


def test_sketch_is_linear_and_preserves_angles():
    rows = torch.randn(4, 50_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows[1] += rows[0]
    short = sketch(rows)
    assert short.shape == (4, MAX_SIZE)
    torch.testing.assert_close(short[0] + 3 * short[2], sketch((rows[0] + 3 * rows[2])[None])[0])
    expected, found = (np.corrcoef(x.numpy()) for x in (rows, short))
    assert abs(expected - found).max() < 4 / MAX_SIZE**0.5


def test_sketch_adds_signed_coordinates_in_every_dtype():
    row = torch.arange(20_000.0)[None]
    torch.testing.assert_close(sketch(row), sketch(row.double()).float(), rtol=1e-4, atol=1e-2)
    signs = [float(sketch(unit_vector(index, 20_000))[0, 5]) for index in range(5, 20_000, MAX_SIZE)]
    assert set(signs) <= {-1.0, 1.0}
    assert sketch(row)[0, 5] == sum(sign * index for sign, index in zip(signs, range(5, 20_000, MAX_SIZE), strict=True))


def unit_vector(index, length):
    row = torch.zeros(1, length)
    row[0, index] = 1
    return row
