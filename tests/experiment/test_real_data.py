"""Every dataset at hand trains: the loss falls on its own model."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco.evaluation import evaluate

IMAGES = {"clients": 6, "partition": "iid", "rounds": 3, "local_steps": 10, "local_lr": 0.05}
TABLE = {"partition": "iid", "rounds": 3, "local_steps": 20, "local_lr": 0.1}
RUNS = {
    "mnist": IMAGES,
    "fmnist": IMAGES,
    "femnist": IMAGES | {"partition": "natural"},
    "femnist:digits": IMAGES,
    "cifar10": IMAGES | {"local_steps": 20},
    "adult": TABLE,
    "adult:standardized": TABLE,
    "shakespeare": {"rounds": 3, "local_steps": 4, "participation": 0.1, "batch_size": 16},
}
PART = 200
"""How many test samples are enough to see a loss fall."""


@pytest.mark.parametrize("name", RUNS)
def test_the_loss_falls(real_data, name, monkeypatch):
    monkeypatch.setattr("fedtaco.simulator.evaluate", _quick)
    result = fedtaco.run("fedavg", dataset=name, data_dir=real_data, **RUNS[name])
    losses = result.history.column("loss")
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("dataset", "model"), [("adult", "lstm"), ("shakespeare", "mlp")])
def test_a_model_that_does_not_fit_the_data_is_refused(real_data, tmp_path, dataset, model):
    with pytest.raises(fedtaco.InvalidInput, match="Model and loss do not work on the samples"):
        fedtaco.run("fedavg", dataset=dataset, model=model, data_dir=real_data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_resnet_trains_on_cifar10(real_data, monkeypatch):
    monkeypatch.setattr("fedtaco.simulator.evaluate", _quick)
    monkeypatch.setattr("test_real_data.PART", 32)
    settings = {"clients": 4, "participation": 0.25, "rounds": 2, "local_steps": 3, "batch_size": 8, "partition": "iid"}
    result = fedtaco.run("fedavg", dataset="cifar10", model="resnet18", data_dir=real_data, **settings)
    losses = result.history.column("loss")
    assert losses[-1] < losses[0]


def _quick(model, samples, loss, weights, buffers):
    """Evaluation on a fixed part of the test set."""
    chosen = torch.randperm(3000, generator=torch.Generator().manual_seed(0))[:PART]
    return evaluate(model, samples.subset(chosen), loss, weights, buffers)
