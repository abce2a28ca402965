from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco import InvalidInput
from fedtaco.models import FlatModel, build_model

BATCH = (torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))


def test_gradient_is_autograds():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    cross_entropy(module(BATCH[0]), BATCH[1]).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    model = FlatModel(module)
    torch.testing.assert_close(model.gradient(model.vector, BATCH, cross_entropy, 0), expected)


def test_gradient_elsewhere_leaves_the_model_where_it_is():
    model = FlatModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    before, buffers = model.vector.clone(), model.buffers.clone()
    elsewhere = model.gradient(before + 1, BATCH, cross_entropy, 0)
    assert torch.equal(model.vector, before)
    assert torch.equal(model.buffers, buffers)
    model.load(before + 1, buffers)
    torch.testing.assert_close(model.gradient(model.vector, BATCH, cross_entropy, 0), elsewhere)


def test_two_gradients_share_one_draw_of_dropout():
    model = FlatModel(nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.5), nn.Linear(50, 3)))
    same = [model.gradient(model.vector, BATCH, cross_entropy, seed) for seed in (1, 1, 2)]
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], same[2])


def test_users_module_is_not_changed():
    module = nn.Linear(4, 3)
    kept = module.weight.clone()
    model = FlatModel(module)
    model.vector.zero_()
    assert torch.equal(module.weight, kept)


def test_frozen_and_tied_parameters():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    module[1].weight = module[0].weight
    module[2].weight.requires_grad_(False)
    model = FlatModel(module)
    assert model.vector.numel() == 16 + 4 + 4 + 3
    model.vector.fill_(2.0)
    assert torch.equal(model.module[0].weight, model.module[1].weight)
    assert torch.equal(model.module[2].weight, module[2].weight)


def test_trained_module_keeps_its_own_weights():
    model = FlatModel(nn.Linear(4, 3))
    trained = model.to_module(torch.ones_like(model.vector), model.buffers)
    model.vector.zero_()
    assert torch.equal(trained.weight, torch.ones(3, 4))
    assert not trained.training


def test_gradient_elsewhere_does_not_count_as_a_batch():
    model = FlatModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None)))
    model.gradient(model.vector.clone(), BATCH, cross_entropy, 0)
    assert model.module[1].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Flatten(), "no trainable parameter"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "torch.float32, torch.float64"),
    ],
)
def test_models_that_cannot_work_are_refused(module, words):
    with pytest.raises(InvalidInput, match=words):
        FlatModel(module)


def test_initial_weights_are_a_function_of_the_seed():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    models = [FlatModel(build_model("mlp:16-8", (8, 8), 10, seed)).vector for seed in (1, 1, 2)]
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])
    assert torch.equal(torch.get_rng_state(), state)
