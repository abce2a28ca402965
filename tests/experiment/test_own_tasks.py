"""fedtaco.train and fedtaco.run on a user's own data and model: recorded, resumed and loaded like any other run."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from own_task import QUICK, Net, fixed_net
from run_helpers import Interrupted, assert_same_model, assert_same_result, interrupt_after
from small_training import make_clients
from torch import nn
from torch.utils.data import Dataset

import fedtaco
from fedtaco import Callback, Guard, InvalidInput, Method, Taco
from fedtaco.records import RunFolder
from fedtaco.report import write_report


def train(model=Net, clients=None, **changes):
    return fedtaco.train(model, clients or make_clients(), make_clients(1)[0], **{**QUICK, **changes})


def test_run_folder_says_what_was_run(tmp_path):
    result = train(out=tmp_path / "run", method=Taco(gamma=0.2), detector=Guard(copy=1e-3), target=0.6)
    config, partition = RunFolder(tmp_path / "run").config(), RunFolder(tmp_path / "run").partition()
    names = ("dataset", "model", "partition", "clients", "method", "detector", "target")
    assert [config[name] for name in names] == ["own data", "Net", "by client", 4, "taco", "guard", 0.6]
    assert (config["parameters"]["taco.gamma"], config["parameters"]["guard.copy"]) == (0.2, 1e-3)
    assert config["own"].keys() == {"data", "weights", "input_shape", "classes"}
    assert partition.label_counts.tolist() == [np.bincount(y, minlength=3).tolist() for _, y in make_clients()]
    assert [len(part) for part in partition.indices] == [30] * 4
    assert result.summary["worst_tenth_accuracy"] is not None
    loaded = fedtaco.load(tmp_path / "run", model=Net)
    assert_same_result(result, loaded)
    assert loaded.summary["final_accuracy"] == result.summary["final_accuracy"]


def test_folder_changes_nothing_about_the_result(tmp_path):
    assert_same_result(train(fixed_net()), train(fixed_net(), out=tmp_path / "run"))


@pytest.mark.parametrize("engine", ["serial", "batched"])
def test_interrupted_run_ends_as_an_uninterrupted_one(engine, tmp_path):
    settings = {"method": "scaffold", "engine": engine, "participation": 0.5, "detector": "guard", "validation": 0.2}
    expected = train(**settings)
    for number in (2, 4):
        with pytest.raises(Interrupted):
            train(out=tmp_path / "run", resume=True, callbacks=[interrupt_after(number)], **settings)
    assert_same_result(expected, train(out=tmp_path / "run", resume=True, **settings))


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
import fedtaco
from own_task import QUICK, Net, load_by_client

class Kill(fedtaco.Callback):
    def on_round_end(self, run, record):
        if record.round == 3:
            os.kill(os.getpid(), signal.SIGKILL)

clients, test = load_by_client()
fedtaco.train(Net, clients, test, method="scaffold", out=sys.argv[1], callbacks=[Kill()], **QUICK)
"""


def test_killed_run_ends_as_an_uninterrupted_one(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(Path(__file__).parents[1])]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    assert not (tmp_path / "run" / "summary.json").exists()
    assert_same_result(train(method="scaffold"), train(method="scaffold", out=tmp_path / "run", resume=True))


def changed_sample():
    clients = make_clients()
    clients[2][0][7, 3] += 1e-6
    return clients


def moved_samples():
    (x, y), *others = make_clients()
    return [(x.flip(0), y.flip(0)), *others]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clients": changed_sample()}, "the samples of its clients or of its test set are not those given here"),
        ({"clients": moved_samples()}, "the samples of its clients or of its test set are not those given here"),
        ({"model": partial(Net, bias=False)}, "the initial weights of its model are not those given here"),
        ({"local_steps": [3, 3, 3, 2]}, "the local steps of its clients are not those given here"),
        ({"loss": partial(nn.functional.cross_entropy, label_smoothing=0.1)}, "own.loss is None there"),
        ({"name": "hospitals"}, "dataset is 'own data' there and 'hospitals' here"),
        ({"rounds": 7}, "rounds is 6 there and 7 here"),
    ],
    ids=["sample", "order", "model", "steps", "loss", "name", "rounds"],
)
def test_run_of_other_things_is_not_resumed(changes, message, tmp_path):
    with pytest.raises(Interrupted):
        train(out=tmp_path / "run", callbacks=[interrupt_after(2)])
    with pytest.raises(InvalidInput, match=f"holds another run and cannot be resumed as this one: {message}"):
        train(out=tmp_path / "run", resume=True, **changes)


def test_other_test_set_is_noticed(tmp_path):
    with pytest.raises(Interrupted):
        train(out=tmp_path / "run", callbacks=[interrupt_after(2)])
    with pytest.raises(InvalidInput, match="test set are not those given here"):
        fedtaco.train(Net, make_clients(), None, out=tmp_path / "run", resume=True, **QUICK)


def test_seed_decides_the_weights_of_a_callable_and_not_those_of_a_module(tmp_path):
    def initial_weights(model, seed):
        folder = tmp_path / f"{model}-{seed}"
        train(model, out=folder, seed=seed, rounds=1)
        return RunFolder(folder).config()["own"]["weights"]

    assert initial_weights(Net, 0) != initial_weights(Net, 1)
    module = Net()
    assert initial_weights(module, 0) == initial_weights(module, 1)


def test_model_of_the_same_seed_is_the_same_whatever_torch_drew_before():
    torch.manual_seed(1)
    first = train(Net)
    state = torch.random.get_rng_state()
    second = train(partial(Net))
    assert_same_result(first, second)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, r"contains a model of your own, Net; pass one of its kind: fedtaco\.load\(folder, model=…\)"),
        (nn.Linear(5, 3), "is not of the architecture of the given model"),
        (torch.relu, "give a torch.nn.Module, or a callable"),
    ],
    ids=["missing", "other", "function"],
)
def test_run_is_not_loaded_without_its_model(model, message, tmp_path):
    train(out=tmp_path / "run", rounds=1)
    with pytest.raises(InvalidInput, match=message):
        fedtaco.load(tmp_path / "run", model=model)


def test_own_model_runs_on_a_named_dataset_and_a_named_model_on_own_data(tmp_path):
    def flat():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    own_model = fedtaco.run("fedavg", model=flat, out=tmp_path / "model", dataset="digits", rounds=2, local_steps=2)
    assert RunFolder(tmp_path / "model").config()["model"] == "flat"
    assert_same_result(own_model, fedtaco.load(tmp_path / "model", model=flat()))
    named_model = train("mlp:7", out=tmp_path / "data")
    assert named_model.model[1].out_features == 7
    assert_same_result(named_model, fedtaco.load(tmp_path / "data"))


def test_numbers_of_numpy_are_settings(tmp_path):
    plain = train(method=Taco(gamma=0.5), rounds=2, seed=3, local_lr=0.5)
    given = {"rounds": np.int64(2), "seed": np.int64(3), "local_lr": np.float32(0.5)}
    assert_same_result(train(method=Taco(gamma=np.float32(0.5)), out=tmp_path / "run", **given), plain)
    assert RunFolder(tmp_path / "run").config()["rounds"] == 2


def test_named_model_needs_class_labels():
    clients = [(x, x.sum(1)) for x, _ in make_clients()]
    with pytest.raises(InvalidInput, match="The model mlp needs targets that are class labels; give your own model"):
        fedtaco.train("mlp", clients, loss=nn.functional.mse_loss, **QUICK)


class ThreeColumns(Dataset):
    """Samples that are not in memory."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index] + 0.01 * torch.randn(5), self.y[index]


def test_datasets_that_are_not_in_memory_are_recorded_and_resumed(tmp_path):
    def run(**changes):
        clients = [ThreeColumns(*pair) for pair in make_clients()]
        test = ThreeColumns(*make_clients(1)[0])
        return fedtaco.train(Net, clients, test, validation=0.2, **{**QUICK, **changes})

    with pytest.raises(Interrupted):
        run(out=tmp_path / "run", callbacks=[interrupt_after(2)])
    resumed = run(out=tmp_path / "run", resume=True)
    assert_same_result(run(), resumed)
    assert RunFolder(tmp_path / "run").partition().label_counts.shape == (4, 0)
    write_report([RunFolder(tmp_path / "run")], tmp_path / "report.html")
    assert "own data" in (tmp_path / "report.html").read_text()


def test_validation_is_held_out_of_each_client(tmp_path):
    result = train(out=tmp_path / "run", validation=0.2)
    partition = RunFolder(tmp_path / "run").partition()
    assert [len(part) for part in partition.indices] == [24] * 4
    assert [int(part.min()) // 30 for part in partition.indices] == [0, 1, 2, 3]
    held_out = np.setdiff1d(np.arange(120), np.concatenate(partition.indices))
    x, y = (torch.cat(parts) for parts in zip(*make_clients(), strict=True))
    correct = result.model(x[held_out]).argmax(1) == y[held_out]
    assert result.history[-1].validation_accuracy == pytest.approx(float(correct.float().mean()))


def test_clients_of_your_own_may_misbehave(tmp_path):
    train(out=tmp_path / "run", freeloaders=1, behaviour="zero", detector="guard")
    summary = RunFolder(tmp_path / "run").summary()
    assert summary["detection"]["freeloaders"] == 1
    assert "zero" in RunFolder(tmp_path / "run").history()[0].decisions[0].reason
    train(freeloaders=1, behaviour="label-flip")
    with pytest.raises(InvalidInput, match="label-flip needs samples in memory with class labels"):
        train(clients=[ThreeColumns(*pair) for pair in make_clients()], freeloaders=1, behaviour="label-flip")


def test_regression_is_recorded_and_reported(tmp_path):
    clients = [(x, x.sum(1, keepdim=True)) for x, _ in make_clients()]
    settings = {"loss": nn.MSELoss(), "out": tmp_path / "run", "name": "sums", **QUICK}
    result = fedtaco.train(nn.Linear(5, 1), clients, clients[0], **settings)
    assert result.history[-1].loss < result.history[0].loss
    assert RunFolder(tmp_path / "run").config()["own"]["loss"] == "MSELoss"
    assert "sums" in repr(result)
    write_report([RunFolder(tmp_path / "run")], tmp_path / "report.html")


def test_report_shows_the_labels_of_own_clients(tmp_path):
    for seed in (0, 1):
        train(out=tmp_path / "runs" / str(seed), name="hospitals", seed=seed)
    write_report([RunFolder(tmp_path / "runs" / str(seed)) for seed in (0, 1)], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "hospitals" in page


def test_class_that_cannot_be_imported_is_run(tmp_path):
    class Halved(Method):
        name, summary = "halved", "sends half of the update"

        def finish(self, update, local):
            return {"update": update / 2}, local.memory

    result = train(method=Halved(), out=tmp_path / "run")
    assert result.summary["method"] == "halved"
    assert_same_model(train(method=Halved).model, result.model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": "iid"}, r"There is no setting 'partition', .* split those of all with fedtaco.split"),
        ({"localsteps": 3}, "There is no setting 'localsteps'; did you mean 'local_steps'"),
        ({"name": "mine:load"}, "name is 'mine:load'; it must be text without a colon"),
        ({"resume": True}, r"resume needs the folder of the run \(out\)"),
        ({"overwrite": True}, r"overwrite needs the folder of the run \(out\)"),
        ({"model": lambda: 3}, "The model is a int; give a torch.nn.Module"),
        (
            {"model": lambda: 1 / 0},
            r"<lambda> failed with ZeroDivisionError: division by zero \(test_own_tasks.py, line",
        ),
        ({"detector": 3}, "detector is 3; it must be a Detector or a name"),
        ({"method": Net}, "it must be a Method or a name"),
        ({"device": "cuda"}, "set device to 'cpu' or 'auto'"),
        ({"freeloaders": 9}, "only 4 clients"),
        ({"clients": 3}, "clients is 3; it must be a list with the samples of each client"),
        ({"callbacks": Callback()}, "it must be a list of callbacks"),
        ({"metrics": [len]}, "it must be a mapping of names to functions"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_invalid_arguments_are_explained(changes, message):
    with pytest.raises(InvalidInput, match=message):
        train(**changes)
