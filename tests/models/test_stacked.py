"""Stacked gradients equal those of single models; a model that cannot be stacked is refused with a reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.models import FlatModel, Unstackable, build_model, stack_model

X, Y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])


def tied_layers():
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(4, 3))


def partly_frozen():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("module", "by_hand"),
    [
        (nn.Linear(4, 3), True),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3)), True),
        (nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)), False),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.ReLU()), False),
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), False),
        (nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)), False),
        (partly_frozen(), False),
    ],
    ids=lambda value: str(value).replace("\n", "") if isinstance(value, nn.Module) else "",
)
def test_stacked_gradients_equal_those_of_single_models(module, by_hand):
    model = FlatModel(module.double())
    stack = stack_model(model, cross_entropy, (X.double(), Y), True)
    assert stack.by_hand == by_hand
    points = model.vector + torch.linspace(-1, 1, 3, dtype=torch.float64)[:, None]
    batches = [(X.double() + shift, Y.roll(shift)) for shift in range(3)]
    stacked = [torch.stack(parts) for parts in zip(*batches, strict=True)]
    for point, batch, *found in zip(points, batches, *stack.gradient_and_loss(points, *stacked), strict=True):
        expected = model.gradient_and_loss(point, batch, cross_entropy, 0)
        torch.testing.assert_close(tuple(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", [cross_entropy, lambda prediction, y: 3 * cross_entropy(prediction, y)])
def test_stacked_losses_are_right_even_where_the_softmax_is_zero(loss):
    model = FlatModel(nn.Linear(4, 3))
    stack = stack_model(model, loss, (X, Y), True)
    assert stack.by_hand
    points = 10_000 * model.vector[None]
    _, losses = stack.gradient_and_loss(points, X[None], Y[None])
    _, own = model.gradient_and_loss(points[0], (X, Y), loss, 0)
    assert own > 100
    torch.testing.assert_close(losses[0], own)


class DataDependent(nn.Module):
    """A model whose forward pass branches on the values of its inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


@pytest.mark.parametrize(
    ("module", "x", "reason"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), X, "draws random numbers, as dropout does"),
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), X, "changes its buffers"),
        (tied_layers(), X, "uses a parameter in two places"),
        (DataDependent(), X, "cannot compute its copies at once .*data-dependent control flow"),
        (build_model("lstm", (5,), 9, 0), torch.randint(0, 9, (6, 5)), "no stacked form of aten::"),
    ],
    ids=["dropout", "batchnorm", "tied", "branches", "lstm"],
)
def test_model_that_cannot_be_stacked_is_refused_with_a_reason(module, x, reason):
    model = FlatModel(module)
    before = model.vector.clone(), model.buffers.clone()
    with pytest.raises(Unstackable, match=reason):
        stack_model(model, cross_entropy, (x, Y), True)
    assert torch.equal(before[0], model.vector)
    assert torch.equal(before[1], model.buffers)


def test_model_with_a_constant_buffer_is_stacked():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.register_buffer("shift", torch.ones(4))

        def forward(self, x):
            return self.layer(x + self.shift)

    assert not stack_model(FlatModel(Shifted()), cross_entropy, (X, Y), True).by_hand
