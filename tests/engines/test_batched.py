"""Stacked clients give what each gives alone, to rounding."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from sketches import SKETCHES
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import Dataset

import fedtaco
from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.engines import BatchedEngine, SerialEngine
from fedtaco.methods import METHODS, Broadcast, Constants, FedAvg, Scaffold, Stem
from fedtaco.models import FlatModel, build_model, stack_model
from fedtaco.testing.small import CLASSES, FEATURES, skewed_clients

EVERY_METHOD = [*(kind() for kind in METHODS.values()), *SKETCHES]


def perceptron(activation=nn.ReLU):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(FEATURES, 6), activation(), nn.Linear(6, CLASSES)).double()


def train(method, engine, model=None, clients=None, **options):
    clients = skewed_clients() if clients is None else clients
    settings = {"rounds": 10, "local_steps": [4, 4, 3, 3, 4], "batch_size": 5, "local_lr": 0.1, **options}
    return fedtaco.train(model or perceptron(), clients, clients[0], method=method, engine=engine, **settings)


def assert_same_run(one, other):
    for record, twin in zip(one.history, other.history, strict=True):
        assert record.accuracy == twin.accuracy
        assert record.loss == pytest.approx(twin.loss, rel=1e-9)
    for record, twin in zip(one.history.clients, other.history.clients, strict=True):
        assert (record.client, record.round) == (twin.client, twin.round)
        assert dict(record.quantities) == pytest.approx(dict(twin.quantities), rel=1e-9, abs=1e-12)
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(other.model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", EVERY_METHOD, ids=lambda method: method.name)
def test_ten_rounds_agree_with_serial_in_float64(method):
    assert_same_run(train(method, "serial"), train(method, "batched"))


@pytest.mark.parametrize("method", [Scaffold(), Stem()], ids=lambda method: method.name)
def test_any_module_is_stacked_through_torch_func(method):
    serial, batched = (train(method, engine, perceptron(nn.Tanh)) for engine in ("serial", "batched"))
    assert_same_run(serial, batched)


def test_workers_and_participation_do_not_matter():
    options = {"participation": 0.6}
    assert_same_run(train("taco", "serial", **options), train("taco", "batched", workers=2, **options))


def test_any_loss_and_any_targets():
    def left_out():
        clients = skewed_clients()
        for samples in clients:
            samples.y[::4] = -100
        return clients

    assert_same_run(*(train("fedavg", engine, clients=left_out()) for engine in ("serial", "batched")))
    pairs = [(samples.x, samples.x[:, :CLASSES] ** 2) for samples in skewed_clients()]
    for loss, targets in ((mse_loss, pairs), (cross_entropy, [(x, y.softmax(1)) for x, y in pairs])):
        runs = [
            fedtaco.train(
                perceptron(), targets, targets[0], method="taco", rounds=3, local_steps=2, loss=loss, engine=engine
            )
            for engine in ("serial", "batched")
        ]
        for name, tensor in runs[0].model.state_dict().items():
            torch.testing.assert_close(runs[1].model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


def test_a_broken_client_in_a_stack_costs_only_itself():
    broken = skewed_clients()
    broken[2].x.fill_(torch.nan)
    serial, batched = (train("scaffold", engine, clients=broken[::-1]) for engine in ("serial", "batched"))
    assert [set(record.dropped) for record in batched.history] == [{2}] * 10
    for name, tensor in serial.model.state_dict().items():
        torch.testing.assert_close(batched.model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spec", ["mlp", "cnn"])
def test_one_float32_round_agrees_to_a_ten_thousandth(spec):
    """The stated tolerance: 1e-4 of an upload's norm after 10 steps."""
    shape, classes, jobs = (1, 16, 16), 10, 3
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.rand(40, *shape, generator=generator), torch.randint(0, classes, (40,), generator=generator))
        for _ in range(jobs)
    ]
    model = FlatModel(build_model(spec, shape, classes, seed=1))
    samples = [fedtaco.data.as_samples(pair) for pair in clients]
    runner = ClientRunner(model, samples, ClientConfig(Constants(jobs, 1, 10, 0.05), 16, cross_entropy, 0))
    order = Instructions("train", 1, Broadcast(model.vector.clone()), model.buffers.clone())
    work = [ClientJob(row, row, 10, {}) for row in range(jobs)]
    alone = SerialEngine(runner).run(FedAvg(), order, work).vectors["update"]
    stack = stack_model(model, cross_entropy, runner.first_batch(), True)
    assert stack.by_hand == (spec == "mlp")
    together = BatchedEngine(runner, stack, chunk=3, workers=1).run(FedAvg(), order, work).vectors["update"]
    difference = (together - alone).norm(dim=1) / alone.norm(dim=1)
    assert 0 < difference.max() < 1e-4


class Fatal(Dataset):
    """Samples whose client's process dies when they are first fetched in a worker."""

    def __init__(self, samples, marker):
        self.samples, self.marker, self.home = samples, marker, os.getpid()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, place):
        if os.getpid() != self.home and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.samples.x[place], self.samples.y[place]


def test_a_worker_that_dies_is_named_with_all_its_clients(tmp_path):
    clients = skewed_clients()
    clients[1] = Fatal(clients[1], tmp_path / "died")
    with pytest.warns(RuntimeWarning, match=r"died \(exit code -9\) while it ran clients 0, 1; this is run again"):
        survived = train("scaffold", "batched", clients=clients, workers=2, local_steps=4)
    assert_same_run(train("scaffold", "serial", local_steps=4), survived)


def test_records_have_no_seconds_of_single_clients():
    result = train("taco", "batched")
    assert {record.seconds for record in result.history.clients} == {None}
    assert {record.slowest_client_seconds for record in result.history} == {None}
