"""Personal layers: trained on each client along the formulas, remembered, and never sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from personal_models import batch_norm_model
from torch import nn
from torch.nn.functional import mse_loss

import fedtaco
from fedtaco import FedAvg, InvalidInput, Scaffold, Stem
from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.methods import METHODS, Constants
from fedtaco.models import FlatModel
from fedtaco.testing.small_federation import skewed_clients

ROUNDS, STEPS, RATE = 3, 2, 0.1
X = [np.array([1.0, 2.0, -1.0]), np.array([0.5, -2.0, 3.0])]
Y = [np.array([2.0, 1.0, 0.0]), np.array([-1.0, 4.0, 1.0])]
W, B = 0.3, -0.2


def line():
    """Return the model w x + b in float64."""
    module = nn.Linear(1, 1, dtype=torch.float64)
    with torch.no_grad():
        module.weight.fill_(W)
        module.bias.fill_(B)
    return module


def train_line(method, **settings):
    """Train the line on two clients of three samples each, all of which are in every batch."""
    clients = [(torch.tensor(x)[:, None], torch.tensor(y)[:, None]) for x, y in zip(X, Y, strict=True)]
    given = {"rounds": ROUNDS, "local_steps": STEPS, "local_lr": RATE, "batch_size": 3, "engine": "serial"}
    return fedtaco.train(line(), clients, method=method, loss=mse_loss, personal="bias", **{**given, **settings})


def slopes(client, w, b):
    """Return the derivatives of the mean squared error of a client."""
    error = w * X[client] + b - Y[client]
    return 2 * (error * X[client]).mean(), 2 * error.mean()


def assert_line(result, w, biases):
    assert result.model.weight.item() == pytest.approx(w, abs=1e-12)
    assert result.model.bias.item() == B
    for client, bias in enumerate(biases):
        own = result.client_model(client)
        assert own.weight.item() == result.model.weight.item()
        assert own.bias.item() == pytest.approx(bias, abs=1e-12)


def test_fedavg_with_a_personal_bias_by_hand():
    w, biases = W, [B, B]
    for _ in range(ROUNDS):
        ends = []
        for client in range(2):
            x = w
            for _ in range(STEPS):
                by_w, by_b = slopes(client, x, biases[client])
                x, biases[client] = x - RATE * by_w, biases[client] - RATE * by_b
            ends.append(x)
        w = np.mean(ends)
    assert_line(train_line(FedAvg()), w, biases)
    assert abs(biases[0] - biases[1]) > 0.1


def test_the_correction_of_a_method_does_not_reach_personal_layers():
    w, variate, variates, biases = W, 0.0, [0.0, 0.0], [B, B]
    for _ in range(ROUNDS):
        ends, before = [], list(variates)
        for client in range(2):
            x = w
            for _ in range(STEPS):
                by_w, by_b = slopes(client, x, biases[client])
                x = x - RATE * (by_w + variate - before[client])
                biases[client] -= RATE * by_b
            variates[client] = (w - x) / (STEPS * RATE) - (variate - before[client])
            ends.append(x)
        w, variate = np.mean(ends), variate + np.mean(np.subtract(variates, before))
    assert_line(train_line(Scaffold()), w, biases)


def test_weight_decay_momentum_and_clipping_apply_to_personal_layers_too():
    """As if all layers of a client were trained by SGD of torch; the norm of the gradient is that of all layers."""
    settings = {"momentum": 0.5, "weight_decay": 0.1, "clip_norm": 2.0}
    result = train_line(FedAvg(), **settings)
    w, biases = torch.tensor(W, dtype=torch.float64), [torch.tensor(B, dtype=torch.float64)] * 2
    for _ in range(ROUNDS):
        ends = []
        for client in range(2):
            x, b = (value.clone().requires_grad_() for value in (w, biases[client]))
            optimizer = torch.optim.SGD([x, b], lr=RATE, momentum=0.5, weight_decay=0.1)
            for _ in range(STEPS):
                optimizer.zero_grad()
                mse_loss(x * torch.tensor(X[client]) + b, torch.tensor(Y[client])).backward()
                torch.nn.utils.clip_grad_norm_([x, b], 2.0)
                optimizer.step()
            biases[client] = b.detach()
            ends.append(x.detach())
        w = torch.stack(ends).mean()
    for client in range(2):
        assert result.client_model(client).bias.item() == pytest.approx(biases[client].item(), abs=1e-6)
    assert result.model.weight.item() == pytest.approx(w.item(), abs=1e-6)


def test_the_gradient_at_the_current_point_counts_for_stem():
    """STEM also evaluates the gradient at the previous point of a step, here with the current bias."""
    w, biases, alpha = W, [B, B], 0.3
    for _ in range(ROUNDS):
        ends = []
        for client in range(2):
            x, previous, momentum = w, None, 0.0
            for step in range(STEPS):
                by_w, by_b = slopes(client, x, biases[client])
                if step:
                    by_w += (1 - alpha) * (momentum - slopes(client, previous, biases[client])[0])
                momentum, previous = by_w, x
                x, biases[client] = x - RATE * by_w, biases[client] - RATE * by_b
            ends.append(x - RATE * momentum)
        w = np.mean(ends)
    assert_line(train_line(Stem(alpha=alpha)), w, biases)


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_an_upload_contains_neither_parameters_nor_statistics_of_personal_norm_layers(method):
    model = FlatModel(batch_norm_model(), personal=["bn.*"])
    size = 4 * 6 + 6 + 6 * 3 + 3
    assert model.vector.numel() == size
    assert model.buffers.numel() == 0
    constants = Constants(clients=5, rounds=2, local_steps=2, local_lr=0.1)
    runner = ClientRunner(
        model, dict(enumerate(skewed_clients())), ClientConfig(constants, 4, nn.functional.cross_entropy, 0)
    )
    state = fedtaco.methods.ServerState(model.vector.clone(), method.server_memory(model.vector, constants))
    instructions = Instructions("train", 1, method.broadcast(state, torch.arange(5)), model.buffers.clone())
    fresh = runner.new_memory(method, state.weights)
    result = runner.run(method, instructions, ClientJob(0, 0, 2, fresh))
    assert all(tensor.numel() in (size, 1) for tensor in result.upload.values())
    assert result.buffers.numel() == 0
    assert result.memory.keys() == fresh.keys()
    for name, count in (("personal/weights", 12), ("personal/buffers", 12)):
        assert result.memory[name].shape == (count,)
        assert not torch.equal(result.memory[name], fresh[name])


def test_statistics_of_shared_norm_layers_are_not_mixed_with_personal_ones():
    torch.manual_seed(1)
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3), nn.BatchNorm1d(3))
    model = FlatModel(module, personal=["2.*"])
    model.buffers.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    model.personal_buffers.fill_(5.0)
    assert model.module[0].running_mean.tolist() == [1, 2]
    assert model.module[0].running_var.tolist() == [3, 4]
    assert model.module[2].running_var.tolist() == [5, 5, 5]
    assert model.min_buffers.tolist() == [-torch.inf, -torch.inf, 0, 0]


def test_a_client_number_that_does_not_exist_is_refused():
    result = train_line(FedAvg())
    for client in (-1, 2):
        with pytest.raises(InvalidInput, match=f"client is {client}; it must be below 2 and not negative"):
            result.client_model(client)
