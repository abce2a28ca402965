"""FlatModel: one vector for all parameters, one for the buffers, and gradients at any point."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco import InvalidInput
from fedtaco.models import FlatModel, build_model

BATCH = (torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))


def test_gradient_equals_autograd():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    cross_entropy(module(BATCH[0]), BATCH[1]).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    model = FlatModel(module)
    torch.testing.assert_close(model.gradient(model.vector, BATCH, cross_entropy, 0), expected)


def test_gradient_at_another_point_does_not_change_the_model():
    model = FlatModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    before, buffers = model.vector.clone(), model.buffers.clone()
    elsewhere = model.gradient(before + 1, BATCH, cross_entropy, 0)
    assert torch.equal(model.vector, before)
    assert torch.equal(model.buffers, buffers)
    model.load(before + 1, buffers)
    torch.testing.assert_close(model.gradient(model.vector, BATCH, cross_entropy, 0), elsewhere)


def test_dropout_depends_on_the_seed_alone():
    model = FlatModel(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)))
    first, same_seed, other_seed = (model.gradient(model.vector, BATCH, cross_entropy, seed) for seed in (1, 1, 2))
    assert torch.equal(first, same_seed)
    assert not torch.equal(first, other_seed)


def test_original_module_is_not_changed():
    module = nn.Linear(4, 3)
    before = module.weight.clone()
    model = FlatModel(module)
    model.vector.zero_()
    assert torch.equal(module.weight, before)


def test_frozen_parameters_stay_and_tied_ones_are_counted_once():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    module[1].weight = module[0].weight
    module[2].weight.requires_grad_(False)
    model = FlatModel(module)
    assert model.vector.numel() == 16 + 4 + 4 + 3
    model.vector.fill_(2.0)
    assert torch.equal(model.module[0].weight, model.module[1].weight)
    assert torch.equal(model.module[2].weight, module[2].weight)


def test_returned_module_does_not_share_memory_with_the_model():
    model = FlatModel(nn.Linear(4, 3))
    trained = model.to_module(torch.ones_like(model.vector), model.buffers)
    model.vector.zero_()
    assert torch.equal(trained.weight, torch.ones(3, 4))
    assert not trained.training


def test_gradient_at_another_point_is_not_counted_by_batch_norm():
    model = FlatModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None)))
    model.gradient(model.vector.clone(), BATCH, cross_entropy, 0)
    assert model.module[1].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Flatten(), "no trainable parameter"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "torch.float32, torch.float64"),
    ],
)
def test_untrainable_modules_are_refused(module, message):
    with pytest.raises(InvalidInput, match=message):
        FlatModel(module)


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, same_seed, other_seed = (FlatModel(build_model("mlp:16-8", (8, 8), 10, seed)).vector for seed in (1, 1, 2))
    assert torch.equal(first, same_seed)
    assert not torch.equal(first, other_seed)
    assert torch.equal(torch.get_rng_state(), state)
