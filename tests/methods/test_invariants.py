"""Equations that hold in every round, whatever the data: of Scaffold, FedDyn, TACO and their relatives."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from fedtaco.data import batch_plan
from fedtaco.local_optimizer import AdamW, Sgd
from fedtaco.lr_schedule import CosineDecay, StepDecay
from fedtaco.methods import (
    Constants,
    FedAvg,
    FedCM,
    FedDC,
    FedDyn,
    LocalContext,
    Scaffold,
    ScaffoldM,
    ScaffoldTaco,
    Taco,
    TacoUniform,
)
from fedtaco.randomness import generator
from fedtaco.testing import CLIENTS, LOCAL_LR, STEPS, final_state, make_federation
from fedtaco.testing.small_federation import skewed_clients
from fedtaco.uploads import geometry_of

OPTIMIZERS = [
    Sgd(),
    Sgd(momentum=0.9, weight_decay=0.1),
    Sgd(momentum=0.5, nesterov=True, clip_norm=0.3),
    AdamW(weight_decay=0.1),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("options", [{}, {"participation": 0.4}, {"steps": [1, 2, 3, 4, 5]}], ids=str)
@pytest.mark.parametrize(
    "method", [Scaffold(), Scaffold(alpha=0.5), ScaffoldTaco(), ScaffoldM(), FedDyn(), FedDC(a=0.5)], ids=str
)
def test_server_vectors_are_the_means_over_all_clients(method, options, optimizer):
    """A client that has not taken part yet counts as zero."""
    federation = make_federation(method, optimizer=optimizer, lr_schedule=CosineDecay(), **options)
    for finished in federation.rounds(federation.initial):
        for name in method.averaged:
            vectors = torch.stack([memory[name] for memory in finished.state.memories.values()])
            torch.testing.assert_close(finished.state.server.memory[name], vectors.sum(0) / CLIENTS)
            assert vectors.any()


class Recording:
    """Records the gradients that the method sees, client after client."""

    seen: ClassVar[list] = []

    def direction(self, x, local):
        direction = super().direction(x, local)
        self.seen.append(direction - local.correction)
        return direction


class RecordingScaffold(Recording, Scaffold):
    pass


class RecordingScaffoldTaco(Recording, ScaffoldTaco):
    pass


class RecordingTaco(Recording, Taco):
    pass


def mean_gradients(method, optimizer):
    """Return the mean gradient of each client, weighted by their coefficients in the update; forget the gradients."""
    momentum, is_nesterov = getattr(optimizer, "momentum", 0.0), getattr(optimizer, "nesterov", False)
    tails = [sum(momentum**power for power in range(STEPS - step)) for step in range(STEPS)]
    coefficients = torch.tensor([1 + momentum * tail if is_nesterov else tail for tail in tails], dtype=torch.float64)
    gradients = torch.stack(method.seen).view(CLIENTS, STEPS, -1)
    method.seen.clear()
    return torch.einsum("k,nkd->nd", coefficients / coefficients.sum(), gradients)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
@pytest.mark.parametrize("method", [RecordingScaffold(alpha=0.5), RecordingScaffoldTaco()], ids=str)
def test_scaffold_client_variate_is_the_weighted_mean_gradient_of_the_round(method, optimizer):
    federation = make_federation(method, optimizer=optimizer, lr_schedule=CosineDecay())
    method.seen.clear()
    for finished in federation.rounds(federation.initial):
        for client, gradient in enumerate(mean_gradients(method, optimizer)):
            torch.testing.assert_close(finished.state.memories[client]["variate"], gradient)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_taco_recursion_with_every_optimizer(optimizer):
    """G⁺ = ĝ + sum p_i (1 - α_i) · G, with ĝ the weighted mean of the gradients, in gradient units of each round."""
    method = RecordingTaco()
    federation = make_federation(method, optimizer=optimizer, lr_schedule=StepDecay(every=2, decay=0.5))
    method.seen.clear()
    state = federation.initial
    for finished in federation.rounds(state):
        before, after = state.server.memory, finished.state.server.memory
        weights = torch.tensor([record.quantities["weight"] for record in finished.clients], dtype=torch.float64)
        expected = weights @ mean_gradients(method, optimizer) + weights @ (1 - before["alpha"]) * before["direction"]
        torch.testing.assert_close(after["direction"], expected, rtol=1e-9, atol=1e-12)
        state = finished.state


def test_scaffold_m_recursion():
    """G⁺ = β · mean of the mean gradients + (1 - β) · G, because the variates cancel over all clients."""
    federation = make_federation(ScaffoldM(beta=0.3))
    state = federation.initial
    for finished in federation.rounds(state):
        gradients = torch.stack([memory["variate"] for memory in finished.state.memories.values()])
        expected = 0.3 * gradients.mean(0) + 0.7 * state.server.memory["direction"]
        torch.testing.assert_close(finished.state.server.memory["direction"], expected)
        state = finished.state


@pytest.mark.parametrize("gamma", [None, 0.2])
def test_taco_recursion(gamma):
    """G⁺ = ĝ + B · sum p_i (1 - α_i) · G, with ĝ the weighted mean of the plain gradients."""
    method = Taco(gamma=gamma)
    gain = method.gain(STEPS)
    federation = make_federation(method)
    state = federation.initial
    for finished in federation.rounds(state):
        before, after = state.server, finished.state.server
        weights = [record.quantities["weight"] for record in finished.clients]
        factors = torch.tensor(weights, dtype=torch.float64) @ (1 - before.memory["alpha"])
        move = (before.weights - after.weights) / (STEPS * LOCAL_LR)
        torch.testing.assert_close(after.memory["direction"], move)
        plain = mean_plain_gradient(federation, state, weights)
        expected = plain + gain * factors * before.memory["direction"]
        torch.testing.assert_close(after.memory["direction"], expected, rtol=1e-9, atol=1e-12)
        state = finished.state


def mean_plain_gradient(federation, state, weights):
    """Return the weighted mean gradient along the clients' paths, computed without the training loop of the package."""
    total = torch.zeros_like(state.server.weights)
    gain = federation.server.method.gain(STEPS)
    for client, weight in enumerate(weights):
        factor = 1 - state.server.memory["alpha"][client]
        x = state.server.weights.clone()
        samples = federation.clients.runner.clients[client]
        rng = generator(0, "batches", client, state.round + 1)
        for indices in batch_plan(rng, len(samples), STEPS, 4):
            g = federation.model.gradient(x, samples.batch(indices), federation.clients.runner.config.loss, 0)
            total += weight * g / STEPS
            x = x - LOCAL_LR * (g + gain * factor * state.server.memory["direction"])
    return total


def test_uniform_taco_is_fedcm_with_a_longer_step():
    """With the same α for all clients and B = 1, TACO adds (1 - α) G to the gradient: FedCM's mixture divided by a."""
    direction, g, alpha = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]), torch.tensor(0.3)
    received = {"direction": direction, "alpha": alpha}
    constants = Constants(clients=2, rounds=1, local_steps=5, local_lr=0.1)

    def step(method):
        local = LocalContext(constants, torch.zeros(2), received, {}, 5, lambda x: g.clone(), lambda x: g.clone())
        local.correction = method.correction(local)
        return method.direction(torch.zeros(2), local)

    torch.testing.assert_close(step(FedCM(alpha=0.3)), 0.3 * g + 0.7 * direction)
    torch.testing.assert_close(step(TacoUniform()), g + 0.7 * direction)


def test_taco_with_one_client_is_fedavg():
    assert geometry_of(torch.tensor([[3.0, 4.0]])).alpha.tolist() == [1.0]
    taco = final_state(Taco(), clients=skewed_clients()[:1])
    fedavg = final_state(FedAvg(), clients=skewed_clients()[:1])
    assert torch.equal(taco.server.weights, fedavg.server.weights)


def test_absent_clients_keep_their_alpha():
    federation = make_federation(Taco(), participation=0.4)
    state = federation.initial
    assert state.server.memory["alpha"].tolist() == [0.1] * CLIENTS
    for finished in federation.rounds(state):
        measured = {record.client: record.quantities["alpha"] for record in finished.clients}
        for client in range(CLIENTS):
            expected = measured.get(client, float(state.server.memory["alpha"][client]))
            assert float(finished.state.server.memory["alpha"][client]) == pytest.approx(expected)
        state = finished.state
