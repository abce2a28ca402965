"""Results: models of every kind can be saved and loaded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedtaco
from fedtaco import FedAvg, InvalidInput
from fedtaco.models import build_model
from fedtaco.runs.result import load_model


class Tied(nn.Module):
    """A network whose first and last layer share their weights."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def batch_norm():
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.BatchNorm1d(6))


def partly_frozen():
    module = batch_norm()
    module[0].requires_grad_(False)
    return module


@pytest.mark.parametrize("build", [batch_norm, Tied, partly_frozen])
def test_models_can_be_saved_and_loaded(build, tmp_path):
    clients = [(torch.randn(20, 8) + place, torch.randint(0, 6, (20,))) for place in range(3)]
    result = fedtaco.train(build(), clients, method=FedAvg(), rounds=2, local_steps=2, local_lr=0.1, batch_size=8)
    with pytest.raises(InvalidInput, match=f"there is no folder {tmp_path / 'nowhere'}"):
        result.save(tmp_path / "nowhere" / "model.safetensors")
    result.save(tmp_path / "model.safetensors")
    loaded = load_model(build(), tmp_path / "model.safetensors").eval()
    for name, tensor in result.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    x = torch.randn(5, 8)
    assert torch.equal(loaded(x), result.model(x))


def test_a_tied_model_stays_tied():
    clients = [(torch.randn(20, 8), torch.randint(0, 6, (20,))) for _ in range(2)]
    result = fedtaco.train(Tied(), clients, method=FedAvg(), rounds=1, local_steps=2, local_lr=0.1, batch_size=8)
    assert result.model.last.weight is result.model.first.weight


def test_the_batch_norm_resnet_can_be_saved(tmp_path):
    def build():
        return build_model("resnet18:batchnorm", (3, 8, 8), 4, seed=0)

    clients = [(torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))) for _ in range(2)]
    result = fedtaco.train(build(), clients, method=FedAvg(), rounds=1, local_steps=1, local_lr=0.01, batch_size=4)
    result.save(tmp_path / "model.safetensors")
    load_model(build(), tmp_path / "model.safetensors")
