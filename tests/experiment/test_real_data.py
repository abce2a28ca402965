"""Training on the published datasets, where they are available: the loss decreases."""

from __future__ import annotations

import pytest

import fedtaco

IMAGES = {"clients": 6, "partition": "iid", "rounds": 3, "local_steps": 10, "local_lr": 0.05}
TABLE = {"partition": "iid", "rounds": 3, "local_steps": 20, "local_lr": 0.1}
RUNS = {
    "mnist": IMAGES,
    "fmnist": IMAGES,
    "femnist": IMAGES | {"partition": "natural"},
    "femnist:digits": IMAGES,
    "cifar10": IMAGES | {"local_steps": 20},
    "svhn": IMAGES | {"rounds": 2, "local_steps": 20},
    "adult": TABLE,
    "adult:standardized": TABLE,
    "shakespeare": {"rounds": 3, "local_steps": 4, "participation": 0.1, "batch_size": 16},
}


@pytest.mark.parametrize("name", RUNS)
def test_loss_decreases(real_data, name):
    result = fedtaco.run("fedavg", dataset=name, data_dir=real_data(name), eval_samples=200, **RUNS[name])
    losses = result.history.column("loss")
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("dataset", "model"), [("adult", "lstm"), ("shakespeare", "mlp")])
def test_model_that_does_not_fit_the_data_is_refused(real_data, tmp_path, dataset, model):
    with pytest.raises(fedtaco.InvalidInput, match="Model and loss do not work on the samples"):
        fedtaco.run("fedavg", dataset=dataset, model=model, data_dir=real_data(dataset), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_loss_of_resnet_decreases_on_cifar10(real_data):
    settings = {"clients": 4, "participation": 0.25, "rounds": 2, "local_steps": 3, "batch_size": 8, "partition": "iid"}
    settings |= {"dataset": "cifar10", "model": "resnet18", "data_dir": real_data("cifar10"), "eval_samples": 64}
    result = fedtaco.run("fedavg", **settings)
    losses = result.history.column("loss")
    assert losses[-1] < losses[0]
