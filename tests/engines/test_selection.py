"""The rule that selects an engine depends only on the run; a resumed run keeps its engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from run_helpers import Interrupted, assert_same_model, interrupt_after
from torch import nn
from torch.nn.functional import cross_entropy

import fedtaco
from fedtaco import InvalidInput
from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.data import TensorSamples
from fedtaco.engines import BatchedEngine, PoolEngine, SerialEngine, Workload, select_engine
from fedtaco.methods import Constants
from fedtaco.models import FlatModel, build_model
from fedtaco.records import RunFolder

MLP = build_model("mlp", (108,), 2, seed=0)


def workload(module=MLP, *, clients=20, cohort=None, cores=2, rounds=50, steps=100, shape=(108,), device="cpu"):
    samples = TensorSamples(torch.rand(70, *shape), torch.arange(70) % 2)
    config = ClientConfig(Constants(clients, rounds, 100, 0.1), 64, cross_entropy, 0)
    model = FlatModel(module, torch.device(device))
    steps = steps if isinstance(steps, list) else [steps] * clients
    return Workload(
        ClientRunner(model, dict.fromkeys(range(clients), samples), config), steps, cohort or clients, cores
    )


def cnn():
    return {"module": build_model("cnn", (1, 16, 16), 2, seed=0), "shape": (1, 16, 16)}


def dropout():
    return {"module": nn.Sequential(nn.Linear(108, 8), nn.Dropout(), nn.Linear(8, 2))}


@pytest.mark.parametrize(
    ("settings", "name", "workers", "chunk", "reason"),
    [
        ({}, "batched", 2, 10, "faster stacked"),
        ({"clients": 100}, "batched", 2, 25, "faster stacked"),
        ({"clients": 101}, "batched", 2, 26, "faster stacked"),
        ({"clients": 100, "cohort": 7}, "batched", 2, 4, "faster stacked"),
        ({"cores": 1}, "batched", 1, 20, "faster stacked"),
        ({"rounds": 1, "steps": 10}, "batched", 1, 20, "faster stacked"),
        ({"clients": 2, "rounds": 1, "steps": 2}, "serial", 1, 0, "the run is very short"),
        ({"cohort": 1}, "serial", 1, 0, "one client takes part"),
        ({"steps": list(range(1, 21))}, "pool", 2, 0, "few clients take equally many steps"),
        (cnn(), "pool", 2, 0, "only linear layers with ReLU"),
        ({**cnn(), "cores": 1}, "serial", 1, 0, "and there is one core"),
        ({**cnn(), "rounds": 1, "steps": 2}, "serial", 1, 0, "too little work for several processes"),
        ({"module": build_model("mlp:2000-200", (108,), 2, 0)}, "pool", 2, 0, "618,602 parameters are too many"),
    ],
    ids=str,
)
def test_automatic_selection(settings, name, workers, chunk, reason):
    choice = select_engine("auto", workload(**settings))
    assert (choice.name, choice.workers, choice.chunk) == (name, workers, chunk)
    assert reason in choice.reason
    assert choice == select_engine("auto", workload(**settings)) or choice.stack is not None


def test_reason_mentions_that_the_run_has_one_process():
    assert "the run may use only one process" in select_engine("auto", workload(**cnn()), workers=1).reason


def test_engines_are_built_by_name():
    classes = {"serial": SerialEngine, "pool": PoolEngine, "batched": BatchedEngine}
    for name, cls in classes.items():
        work = workload()
        engine = select_engine(name, work).build(work.runner)
        assert type(engine) is cls
        engine.close()


def test_model_that_cannot_be_stacked_falls_back_to_another_engine():
    choice = select_engine("batched", workload(**dropout()))
    assert choice.name == "pool"
    assert (
        str(choice)
        == "pool (2 worker processes): the model cannot be stacked: it draws random numbers, as dropout does"
    )
    assert select_engine("batched", workload(**dropout(), cores=1)).name == "serial"


def test_recorded_engine_is_kept_on_another_machine():
    choice = select_engine("auto", workload(clients=100, cores=2))
    again = select_engine("auto", workload(clients=100, cores=16), previous=choice.to_config())
    assert (again.name, again.chunk, again.reason) == ("batched", 25, choice.reason)
    assert again.workers == 16
    assert select_engine("auto", workload(cores=16), previous={"engine": "serial", "reason": "why"}).name == "serial"


def test_recorded_engine_that_does_not_exist_is_refused():
    with pytest.raises(InvalidInput, match=r"There is no engine 'zzz'\. Known: batched, pool, serial"):
        select_engine("auto", workload(), previous={"engine": "zzz", "reason": "none"})


def test_accelerator_uses_stacks_in_one_process():
    meta = workload(device="meta")
    assert (meta.processes, meta.chunk(1)) == (1, 20)
    with pytest.raises(InvalidInput, match="pool runs on the CPU, not on meta; use batched"):
        select_engine("pool", meta)


def test_resumed_run_keeps_its_engine_and_result(tmp_path):
    settings = {"dataset": "digits", "clients": 20, "rounds": 4, "local_steps": 60}
    expected = fedtaco.run("scaffold", workers=2, **settings)
    with pytest.raises(Interrupted):
        fedtaco.run("scaffold", out=tmp_path / "run", workers=2, callbacks=[interrupt_after(2)], **settings)
    ran_by = RunFolder(tmp_path / "run").config()["ran_by"]
    selected = {"engine": "batched", "chunk": 10, "reason": "small linear layers are faster stacked"}
    assert ran_by == {**selected, "versions": ran_by["versions"]}
    resumed = fedtaco.run("scaffold", out=tmp_path / "run", workers=1, resume=True, **settings)
    assert RunFolder(tmp_path / "run").config()["ran_by"] == ran_by
    assert_same_model(expected.model, resumed.model)
    assert RunFolder(tmp_path / "run").summary()["engine"].startswith("batched (stacks of 10 clients)")


@pytest.mark.parametrize("name", ["auto", "batched"])
@pytest.mark.parametrize("batch_size", [200, 1000])
def test_clients_whose_batches_are_capped_differently_are_not_stacked(name, batch_size):
    usual = workload()
    clients = [TensorSamples(torch.rand(size, 108), torch.arange(size) % 2) for size in [300, 400] * 10]
    runner = ClientRunner(FlatModel(MLP), dict(enumerate(clients)), replace(usual.runner.config, batch_size=batch_size))
    choice = select_engine(name, replace(usual, runner=runner))
    assert choice.name == ("batched" if batch_size == 200 else "pool")
    assert ("different shapes" in choice.reason) == (batch_size == 1000)


def test_small_clients_with_capped_batches_are_stacked():
    samples = [(torch.rand(size, 5), torch.arange(size) % 3) for size in (20, 30, 250, 7)]
    settings = {"rounds": 3, "local_steps": 4, "batch_size": 5000, "method": "taco"}
    model = nn.Linear(5, 3)
    stacked, serial = (fedtaco.train(model, samples, engine=engine, **settings) for engine in ("batched", "serial"))
    assert stacked.summary["engine"].startswith("batched")
    torch.testing.assert_close(stacked.model.weight, serial.model.weight)
