"""The average of the global models of the last rounds (``average_last``)."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco.errors import InvalidInput, StopTraining
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import Callback

SETTINGS = {"dataset": "digits", "rounds": 5, "local_steps": 5, "engine": "serial"}


class Models(Callback):
    """Keeps the global model of each round, and ends the run after ``last``."""

    def __init__(self, last=99):
        self.models, self.last = [], last

    def on_round_end(self, run, record):
        self.models.append(run.model().state_dict())
        if record.round == self.last:
            raise StopTraining("that is enough")


def averaged(models):
    return {name: torch.stack([model[name].double() for model in models]).mean(0) for name in models[0]}


def assert_same(module, expected, **tolerance):
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, expected[name].to(tensor.dtype), **tolerance)


@pytest.mark.parametrize("average_last", [1, 3, 5, 100])
@pytest.mark.parametrize("method", ["taco", "scaffold"])
def test_the_models_of_the_last_rounds_are_averaged(method, average_last):
    seen = Models()
    result = fedtaco.run(method, average_last=average_last, callbacks=[seen], **SETTINGS)
    assert_same(result.average_model, averaged(seen.models[-average_last:]))


def test_the_average_of_one_model_is_the_last_one():
    result = fedtaco.run("fedavg", average_last=1, **SETTINGS)
    assert_same(result.average_model, result.model.state_dict(), rtol=0, atol=0)
    assert result.summary["average_accuracy"] == result.history.final_accuracy


def test_the_average_is_evaluated_and_recorded(tmp_path):
    out = tmp_path / "run"
    result = fedtaco.run("taco", average_last=3, out=out, **SETTINGS)
    assert 0 < result.summary["average_accuracy"] < 1
    assert result.summary["average_accuracy"] != result.history.final_accuracy
    loaded = fedtaco.load(out)
    assert_same(loaded.average_model, result.average_model.state_dict(), rtol=0, atol=0)
    assert loaded.summary["average_accuracy"] == result.summary["average_accuracy"]
    assert RunFolder(out).has_model("average")


def test_it_is_off_by_default_and_changes_nothing_else(tmp_path):
    usual = fedtaco.run("taco", out=tmp_path / "run", **SETTINGS)
    assert usual.average_model is None
    assert usual.summary["average_accuracy"] is None
    assert not RunFolder(tmp_path / "run").has_model("average")
    assert fedtaco.load(tmp_path / "run").average_model is None
    other = fedtaco.run("taco", average_last=2, **SETTINGS)
    assert_same(usual.model, other.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("last", [2, 4])
def test_a_resumed_run_has_the_same_average(tmp_path, last):
    """It is ended before the first averaged round, or after it."""
    out, settings = tmp_path / "run", {**SETTINGS, "average_last": 3}
    fedtaco.run("taco", out=out, callbacks=[Models(last)], **settings)
    resumed = fedtaco.run("taco", out=out, resume=True, **settings)
    whole = fedtaco.run("taco", **settings)
    assert_same(resumed.average_model, whole.average_model.state_dict(), rtol=0, atol=0)
    assert resumed.summary["average_accuracy"] == whole.summary["average_accuracy"]


def test_a_run_that_ends_before_these_rounds_has_no_average():
    result = fedtaco.run("fedavg", average_last=2, callbacks=[Models(last=2)], **SETTINGS)
    assert result.average_model is None
    assert result.summary["average_accuracy"] is None


def test_buffers_are_averaged_too():
    images = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    labels = (images[:, 0] > 0).long()
    clients = [torch.utils.data.TensorDataset(images[start::2], labels[start::2]) for start in (0, 1)]
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    seen = Models()
    result = fedtaco.train(
        model, clients, method="fedavg", rounds=4, local_steps=2, average_last=2, callbacks=[seen], batch_size=8
    )
    assert_same(result.average_model, averaged(seen.models[-2:]))


def test_a_negative_number_is_refused():
    with pytest.raises(InvalidInput, match="average_last is -1; it must be a whole number at least 0"):
        fedtaco.run("fedavg", average_last=-1, **SETTINGS)
