from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from fedtaco import InvalidInput
from fedtaco.data import TensorSamples, as_samples, batch_plan, load_dataset
from fedtaco.data.samples import DatasetSamples

X, Y = torch.arange(12.0).reshape(6, 2), torch.arange(6)


class Own(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return X[index], int(Y[index])


OWN_DATA = [(X, Y), (X.numpy(), Y.numpy()), TensorDataset(X, Y), Own()]


@pytest.mark.parametrize("data", OWN_DATA, ids=["tensors", "arrays", "TensorDataset", "Dataset"])
def test_samples_are_read_from_all_supported_kinds(data):
    samples = as_samples(data)
    assert len(samples) == 6
    x, y = samples.batch(torch.tensor([4, 1]))
    assert x.tolist() == [[8.0, 9.0], [2.0, 3.0]]
    assert y.tolist() == [4, 1]


def test_tensor_datasets_are_read_as_tensors():
    assert isinstance(as_samples(TensorDataset(X, Y)), TensorSamples)
    assert isinstance(as_samples(Own()), DatasetSamples)


@pytest.mark.parametrize(
    ("data", "words"), [(3, "Cannot read samples from int"), ((X, Y[:2]), "6 inputs but 2 targets")]
)
def test_other_data_are_refused(data, words):
    with pytest.raises(InvalidInput, match=words):
        as_samples(data)


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
