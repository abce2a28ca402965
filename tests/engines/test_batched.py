"""The batched engine agrees with the serial one up to rounding errors."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from small_training import Broken
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import Dataset

import fedtaco
from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.engines import BatchedEngine, SerialEngine
from fedtaco.methods import METHODS, Broadcast, Constants, FedAvg, Scaffold, Stem
from fedtaco.models import FlatModel, build_model, stack_model
from fedtaco.testing.small_federation import CLASSES, FEATURES, skewed_clients

EVERY_METHOD = [cls() for cls in METHODS.values()]


def small_mlp(activation=nn.ReLU):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(FEATURES, 6), activation(), nn.Linear(6, CLASSES)).double()


def train(method, engine, model=None, clients=None, **options):
    clients = skewed_clients() if clients is None else clients
    settings = {"rounds": 10, "local_steps": [4, 4, 3, 3, 4], "batch_size": 5, "local_lr": 0.1, **options}
    return fedtaco.train(model or small_mlp(), clients, clients[0], method=method, engine=engine, **settings)


def measured(record):
    """Return the quantities of a client that the method has."""
    return {name: value for name, value in record.quantities.items() if value is not None}


def assert_same_run(one, other):
    for record, twin in zip(one.history, other.history, strict=True):
        assert record.accuracy == twin.accuracy
        assert record.loss == pytest.approx(twin.loss, rel=1e-9)
        assert record.training_loss == pytest.approx(twin.training_loss, rel=1e-9)
    for record, twin in zip(one.history.clients, other.history.clients, strict=True):
        assert (record.client, record.round) == (twin.client, twin.round)
        assert measured(record) == pytest.approx(measured(twin), rel=1e-9, abs=1e-12)
    for name, tensor in one.model.state_dict().items():
        torch.testing.assert_close(other.model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", EVERY_METHOD, ids=lambda method: method.name)
def test_ten_rounds_agree_with_serial_in_float64(method):
    assert_same_run(train(method, "serial"), train(method, "batched"))


@pytest.mark.parametrize("method", [Scaffold(), Stem()], ids=lambda method: method.name)
def test_other_modules_are_stacked_by_torch_func(method):
    serial, batched = (train(method, engine, small_mlp(nn.Tanh)) for engine in ("serial", "batched"))
    assert_same_run(serial, batched)


def test_workers_and_partial_participation_agree_with_serial():
    options = {"participation": 0.6}
    assert_same_run(train("taco", "serial", **options), train("taco", "batched", workers=2, **options))


def test_other_losses_and_targets_agree_with_serial():
    def clients_with_ignored_labels():
        clients = skewed_clients()
        for samples in clients:
            samples.y[::4] = -100
        return clients

    assert_same_run(
        *(train("fedavg", engine, clients=clients_with_ignored_labels()) for engine in ("serial", "batched"))
    )
    pairs = [(samples.x, samples.x[:, :CLASSES] ** 2) for samples in skewed_clients()]
    for loss, targets in ((mse_loss, pairs), (cross_entropy, [(x, y.softmax(1)) for x, y in pairs])):
        runs = [
            fedtaco.train(
                small_mlp(), targets, targets[0], method="taco", rounds=3, local_steps=2, loss=loss, engine=engine
            )
            for engine in ("serial", "batched")
        ]
        for name, tensor in runs[0].model.state_dict().items():
            torch.testing.assert_close(runs[1].model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


def test_broken_client_in_a_stack_does_not_affect_the_others():
    clients = skewed_clients()
    clients[2] = Broken(clients[2].x, clients[2].y)
    serial, batched = (train("scaffold", engine, clients=clients) for engine in ("serial", "batched"))
    assert batched.summary["engine"].startswith("batched")
    assert [set(record.dropped) for record in batched.history] == [{2}] * 10
    for name, tensor in serial.model.state_dict().items():
        torch.testing.assert_close(batched.model.state_dict()[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("spec", ["mlp", "cnn"])
def test_float32_round_agrees_within_the_documented_tolerance(spec):
    """The tolerance is 1e-4 of an upload's norm after 10 steps."""
    shape, classes, count = (1, 16, 16), 10, 3
    generator = torch.Generator().manual_seed(0)
    clients = [
        (torch.rand(40, *shape, generator=generator), torch.randint(0, classes, (40,), generator=generator))
        for _ in range(count)
    ]
    model = FlatModel(build_model(spec, shape, classes, seed=1))
    samples = [fedtaco.data.as_samples(pair) for pair in clients]
    runner = ClientRunner(
        model, dict(enumerate(samples)), ClientConfig(Constants(count, 1, 10, 0.05), 16, cross_entropy, 0)
    )
    instructions = Instructions("train", 1, Broadcast(model.vector.clone()), model.buffers.clone())
    jobs = [ClientJob(row, row, 10, {}) for row in range(count)]
    serial = SerialEngine(runner).run(FedAvg(), instructions, jobs).vectors["update"]
    stack = stack_model(model, cross_entropy, runner.first_batch(), True)
    assert stack.by_hand == (spec == "mlp")
    batched = BatchedEngine(runner, stack, chunk=3, workers=1).run(FedAvg(), instructions, jobs).vectors["update"]
    difference = (batched - serial).norm(dim=1) / serial.norm(dim=1)
    assert 0 < difference.max() < 1e-4


class KillsWorker(Dataset):
    """Samples that kill the worker process that is the first to fetch one of them."""

    def __init__(self, samples, marker):
        self.samples, self.marker, self.parent = samples, marker, os.getpid()

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        if os.getpid() != self.parent and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.samples.x[index], self.samples.y[index]


def test_warning_about_a_dead_worker_names_all_its_clients(tmp_path):
    clients = skewed_clients()
    clients[1] = KillsWorker(clients[1], tmp_path / "died")
    with pytest.warns(RuntimeWarning, match=r"died \(exit code -9\) while it ran clients 0, 1; a new worker tries"):
        result = train("scaffold", "batched", clients=clients, workers=2, local_steps=4)
    assert_same_run(train("scaffold", "serial", local_steps=4), result)


def test_seconds_of_single_clients_are_not_recorded():
    result = train("taco", "batched")
    assert {record.seconds for record in result.history.clients} == {None}
    assert {record.slowest_client_seconds for record in result.history} == {None}
