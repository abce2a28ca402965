"""The models of the experiments: sizes, shapes, and specifications that are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedtaco
from fedtaco import InvalidInput
from fedtaco.models import FlatModel, build_model


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "count"),
    [
        ("mlp", (123,), 2, 4650),
        ("cnn", (1, 28, 28), 10, 44426),
        ("cnn", (1, 28, 28), 62, 48846),
        ("cnn", (3, 32, 32), 10, 62006),
        ("resnet18", (3, 32, 32), 100, 11220132),
        ("lstm", (80,), 80, 819920),
    ],
)
def test_number_of_parameters_is_that_of_the_paper(spec, shape, classes, count):
    model = FlatModel(build_model(spec, shape, classes, seed=0))
    assert model.vector.numel() == count
    assert model.buffers.numel() == 0
    x = torch.zeros(2, *shape, dtype=torch.long) if spec == "lstm" else torch.randn(2, *shape)
    assert model.module(x).shape == (2, classes)


def test_cnn_has_two_convolutions_and_three_linear_layers():
    kinds = [type(layer).__name__ for layer in build_model("cnn", (1, 28, 28), 10, 0)]
    assert [kind for kind in kinds if kind in ("Conv2d", "Linear")] == ["Conv2d"] * 2 + ["Linear"] * 3


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_faster_layout_of_the_cnn_equals_the_published_one(shape):
    """Pooling before ReLU, and channels last, change neither scores nor gradients, even for constant images."""
    model = FlatModel(build_model("cnn", shape, 10, seed=0).double())
    layers = list(model.module)
    convolved = layers[1](layers[0](torch.randn(2, *shape, dtype=torch.float64)))
    assert convolved.is_contiguous(memory_format=torch.channels_last)
    conv1, pool1, relu1, conv2, pool2, relu2 = layers[1:7]
    published = FlatModel(nn.Sequential(conv1, relu1, pool1, conv2, relu2, pool2, *layers[7:]))
    images = torch.randn(6, *shape, dtype=torch.float64)
    images[3:] = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64).view(3, 1, 1, 1)
    batch = images, torch.arange(6)
    torch.testing.assert_close(model.module(images), published.module(images), rtol=1e-12, atol=1e-12)
    gradients = [each.gradient(each.vector, batch, cross_entropy, 0) for each in (model, published)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_batch_norm_statistics_are_averaged_as_buffers():
    model = build_model("resnet18:batchnorm", (3, 8, 8), 4, seed=0)
    flat = FlatModel(model)
    assert flat.buffers.numel() > 0
    assert flat.vector.numel() == sum(p.numel() for p in model.parameters())
    clients = [(torch.randn(8, 3, 8, 8) + i, torch.randint(0, 4, (8,))) for i in range(2)]
    result = fedtaco.train(model, clients, clients[0], method="fedavg", rounds=1, local_steps=1, batch_size=8)
    assert not torch.equal(result.model[1].running_mean, model[1].running_mean)
    assert result.model[1].num_batches_tracked == 0


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        ("cnn", (1, 8, 8), "at least 16 × 16 pixels"),
        ("cnn", (123,), "takes images"),
        ("resnet18", (80,), "takes images"),
        ("lstm", (1, 28, 28), "sequences of characters"),
        ("cnn:3", (1, 28, 28), "takes no option"),
        ("resnet18:batchnrm", (3, 32, 32), "did you mean 'batchnorm'"),
        ("resnet", (3, 32, 32), "did you mean 'resnet18'"),
    ],
)
def test_models_that_do_not_fit_the_data_are_refused(spec, shape, message):
    with pytest.raises(InvalidInput, match=message):
        build_model(spec, shape, 10, seed=0)


def test_lstm_has_gradients_in_nearly_all_parameters():
    model = FlatModel(build_model("lstm", (80,), 80, seed=0))
    batch = (torch.randint(0, 80, (4, 80)), torch.randint(0, 80, (4,)))
    gradient = model.gradient(model.vector, batch, cross_entropy, 0)
    assert (gradient != 0).float().mean() > 0.9


def test_integer_parameters_are_not_trained():
    class WithCounter(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.steps = nn.Parameter(torch.tensor([7]), requires_grad=False)

        def forward(self, x):
            return self.linear(x)

    clients = [(torch.randn(6, 3), torch.randint(0, 2, (6,))) for _ in range(2)]
    result = fedtaco.train(WithCounter(), clients, rounds=1, local_steps=1)
    assert result.model.steps.tolist() == [7]
