"""Each method with its correction switched off equals FedAvg, for the same seed and batches."""

from __future__ import annotations

import pytest
import torch

from fedtaco.local_optimizer import AdamW, Sgd
from fedtaco.lr_schedule import CosineDecay
from fedtaco.methods import (
    FedACG,
    FedAvg,
    FedAvgM,
    FedCM,
    FedProx,
    FedProxTaco,
    Scaffold,
    ScaffoldTaco,
    Stem,
    Taco,
    TacoCorrection,
    TacoUniform,
)
from fedtaco.testing import final_state

SWITCHED_OFF = [
    FedProx(zeta=0.0),
    FedProxTaco(zeta=0.0),
    Scaffold(alpha=0.0),
    ScaffoldTaco(alpha=0.0),
    Stem(alpha=1.0, server_momentum="off"),
    FedACG(momentum=0.0, beta=0.0),
    TacoCorrection(gamma=0.0),
    TacoUniform(gamma=0.0),
    FedCM(alpha=1.0),
    FedAvgM(momentum=0.0),
]


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("method", SWITCHED_OFF, ids=lambda method: method.name)
def test_method_without_its_correction_is_fedavg(method, participation):
    fedavg = final_state(FedAvg(), participation=participation).server.weights
    weights = final_state(method, participation=participation).server.weights
    torch.testing.assert_close(weights, fedavg, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "optimizer",
    [Sgd(momentum=0.9, weight_decay=0.1), Sgd(momentum=0.9, nesterov=True, clip_norm=0.5), AdamW(weight_decay=0.1)],
    ids=lambda optimizer: type(optimizer).__name__,
)
@pytest.mark.parametrize("method", SWITCHED_OFF, ids=lambda method: method.name)
def test_method_without_its_correction_is_fedavg_with_the_same_optimizer(method, optimizer):
    if optimizer.transforms_gradients and method.cost.gradients > 1:
        pytest.skip(f"{method.name} computes several gradients per step")
    options = {"optimizer": optimizer, "lr_schedule": CosineDecay()}
    fedavg = final_state(FedAvg(), **options).server.weights
    torch.testing.assert_close(final_state(method, **options).server.weights, fedavg, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(fedavg, final_state(FedAvg()).server.weights, rtol=1e-3)


def test_method_with_its_correction_is_not_fedavg():
    fedavg = final_state(FedAvg()).server.weights
    for method in SWITCHED_OFF:
        assert not torch.allclose(final_state(type(method)()).server.weights, fedavg, rtol=1e-6)


@pytest.mark.parametrize("method", [Taco, TacoCorrection, TacoUniform])
def test_literal_gamma_1_equals_accumulated_gamma_1_over_k(method):
    literal = final_state(method(delta_scale="literal", gamma=1.0)).server.weights
    assert torch.equal(literal, final_state(method()).server.weights)
    torch.testing.assert_close(final_state(method(gamma=1 / 3)).server.weights, literal)


@pytest.mark.parametrize("steps", [49, 98, 103])
def test_default_gain_is_exactly_one(steps):
    assert Taco().gain(steps) == 1.0
    assert Taco(gamma=1 / steps).gain(steps) != 1.0
