from __future__ import annotations

import pytest
import torch
from torch import nn

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.data import TensorSamples
from fedtaco.diagnostics import global_loss
from fedtaco.diagnostics.global_loss import GlobalLoss
from fedtaco.local_optimizer import Sgd
from fedtaco.methods import FedAvg
from fedtaco.models import FlatModel
from fedtaco.testing import small_federation

WEIGHTS = [0.1, 0.2, 0.3, 0.15, 0.25]


@pytest.fixture
def runner():
    return small_federation.make_federation(FedAvg()).clients.runner


def gradient(loss):
    return loss.gradient(loss.model.vector.clone(), loss.model.buffers)


def mean_gradient(runner, weights):
    """Return the weighted mean of the clients' gradients over all of their samples."""
    samples = [client.batch(torch.arange(len(client))) for client in runner.clients.values()]
    own = [runner.model.gradient(runner.model.vector, batch, runner.config.loss, seed=0) for batch in samples]
    return sum(weight * one for weight, one in zip(weights, own, strict=True))


def test_gradient_is_the_weighted_mean_over_all_samples_if_there_are_few(runner):
    loss = GlobalLoss(runner, dict(enumerate(WEIGHTS)))
    torch.testing.assert_close(gradient(loss), mean_gradient(runner, WEIGHTS))


def test_joining_clients_changes_nothing(runner, monkeypatch):
    equal = dict.fromkeys(range(5), 0.2)
    joined = GlobalLoss(runner, equal)
    monkeypatch.setattr(global_loss, "BATCH", 30)
    in_parts = GlobalLoss(runner, equal)
    assert [len(part.batch[1]) for part in joined.parts] == [60]
    assert [len(part.batch[1]) for part in in_parts.parts] == [24, 24, 12]
    torch.testing.assert_close(gradient(joined), mean_gradient(runner, [0.2] * 5))
    torch.testing.assert_close(gradient(in_parts), gradient(joined))


def test_samples_are_drawn_evenly_by_seed(runner, monkeypatch):
    monkeypatch.setattr(global_loss, "SAMPLES", 22)
    first, again = (GlobalLoss(runner, dict.fromkeys(range(5), 0.2)) for _ in range(2))
    (part,), (other,) = first.parts, again.parts
    assert len(part.batch[1]) == 5 * 4
    assert torch.equal(part.batch[0], other.batch[0])
    changed = ClientRunner(runner.model, runner.clients, ClientConfig(**{**vars(runner.config), "seed": 1}))
    (another,) = GlobalLoss(changed, dict.fromkeys(range(5), 0.2)).parts
    assert not torch.equal(part.batch[0], another.batch[0])


def test_only_weighted_clients_count(runner):
    loss = GlobalLoss(runner, {1: 0.5, 4: 0.5})
    torch.testing.assert_close(gradient(loss), mean_gradient(runner, [0, 0.5, 0, 0, 0.5]))


def test_weight_decay_is_part_of_the_loss():
    plain, decayed = (
        GlobalLoss(small_federation.make_federation(FedAvg(), optimizer=optimizer).clients.runner, {0: 1.0})
        for optimizer in (Sgd(), Sgd(weight_decay=0.5))
    )
    torch.testing.assert_close(gradient(decayed), gradient(plain) + 0.5 * plain.model.vector)


def test_dropout_draws_the_same_units_each_time():
    torch.manual_seed(0)
    x, y = torch.randn(20, 4), torch.randint(0, 3, (20,))
    module = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    numbers = small_federation.constants(clients=1)
    config = ClientConfig(numbers, 4, nn.functional.cross_entropy, seed=0)
    loss = GlobalLoss(ClientRunner(FlatModel(module), {0: TensorSamples(x, y)}, config), {0: 1.0})
    assert torch.equal(gradient(loss), gradient(loss))
