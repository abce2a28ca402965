"""Each method with its correction off is FedAvg, on the same seed and batches."""

from __future__ import annotations

import pytest
import torch

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

OFF = [
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
@pytest.mark.parametrize("method", OFF, ids=lambda method: method.name)
def test_correction_off_is_fedavg(method, participation):
    plain = final_state(FedAvg(), participation=participation).server.weights
    same = final_state(method, participation=participation).server.weights
    torch.testing.assert_close(same, plain, rtol=1e-12, atol=1e-12)


def test_a_correction_that_is_on_is_not_fedavg():
    plain = final_state(FedAvg()).server.weights
    for method in OFF:
        assert not torch.allclose(final_state(type(method)()).server.weights, plain, rtol=1e-6)


@pytest.mark.parametrize("method", [Taco, TacoCorrection, TacoUniform])
def test_literal_gamma_1_is_accumulated_gamma_1_over_k(method):
    literal = final_state(method(delta_scale="literal", gamma=1.0)).server.weights
    assert torch.equal(literal, final_state(method()).server.weights)
    torch.testing.assert_close(final_state(method(gamma=1 / 3)).server.weights, literal)


@pytest.mark.parametrize("steps", [49, 98, 103])
def test_default_gain_is_exactly_one(steps):
    assert Taco().gain(steps) == 1.0
    assert Taco(gamma=1 / steps).gain(steps) != 1.0


def test_the_mean_of_client_models_comes_out():
    """With the default server rate and no correction, the new model is the mean of the client models."""
    from fedtaco.testing import make_simulator

    simulator = make_simulator(FedAvg())
    seen = []
    run = simulator.engine.run

    class Watching:
        def run(self, method, instructions, jobs):
            results = run(method, instructions, jobs)
            seen.append(instructions.broadcast.start - results.vectors["update"])
            return results

        def close(self):
            pass

    simulator.engine = Watching()
    outcome = next(iter(simulator.rounds(simulator.initial_state())))
    torch.testing.assert_close(outcome.state.server.weights, seen[0].mean(0))
