from __future__ import annotations

import numpy as np
import pytest
import torch

from fedtaco.data import batch_plan, load_dataset


def test_batches_are_whole_passes_over_the_samples():
    plan = batch_plan(np.random.default_rng(0), count=7, steps=5, batch_size=4).flatten()
    assert sorted(plan[:7].tolist()) == list(range(7))
    assert sorted(plan[7:14].tolist()) == list(range(7))
    assert plan[:7].tolist() != plan[7:14].tolist()


def test_a_client_smaller_than_a_batch_repeats_its_samples():
    plan = batch_plan(np.random.default_rng(0), count=3, steps=2, batch_size=8)
    assert plan.shape == (2, 8)
    assert np.bincount(plan.flatten()).min() >= 5


def test_digits_are_compact_and_standardised():
    data = load_dataset("digits")
    assert data.train.x.dtype == torch.uint8
    x, _ = data.train.batch(torch.arange(len(data.train)))
    assert float(x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
