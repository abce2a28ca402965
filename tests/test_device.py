"""Devices: no accelerator is at hand, so that ``meta``, which refuses to mix with the CPU, stands for one."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

import fedtaco
from fedtaco import InvalidInput
from fedtaco.client import ClientConfig, ClientRunner, _SingleClient, _StackedClients
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.data import TensorSamples
from fedtaco.device import choose_device
from fedtaco.methods import METHODS, Broadcast, Constants
from fedtaco.models import FlatModel, Stack, build_model
from fedtaco.models.stacked import _cross_entropy_slope, _LayersByHand, _plain_layers

CLIENTS, STEPS = 3, 2


def on_meta(method):
    """A worker whose model is on ``meta``, and a round's order and jobs, which are at home."""
    home = FlatModel(build_model("mlp", (1, 8, 8), 10, seed=0))
    away = FlatModel(home.module, torch.device("meta"))
    constants = Constants(CLIENTS, 1, STEPS, 0.1)
    samples = TensorSamples(torch.rand(30, 1, 8, 8), torch.arange(30) % 10)
    runner = ClientRunner(away, [samples] * CLIENTS, ClientConfig(constants, 8, cross_entropy, 0))
    server = fedtaco.methods.ServerState(home.vector, method.server_memory(home.vector, constants))
    order = Instructions("train", 1, method.broadcast(server, torch.arange(CLIENTS)), home.buffers)
    memory = method.client_memory(home.vector, constants)
    return runner, order, [ClientJob(row, row, STEPS, memory) for row in range(CLIENTS)]


@pytest.mark.parametrize("method", [kind() for kind in METHODS.values()], ids=lambda method: method.name)
def test_all_that_a_client_computes_is_where_its_model_is(method):
    runner, order, jobs = on_meta(method)
    one = _SingleClient(runner, order, jobs[0])
    stack = Stack(_LayersByHand(_plain_layers(runner.model), _cross_entropy_slope), by_hand=True)
    several = _StackedClients(runner, order, jobs, stack)
    size = runner.model.vector.numel()
    for work, x, shape in (
        (one, runner.model.vector, (size,)),
        (several, torch.empty(CLIENTS, size, device="meta"), (CLIENTS, size)),
    ):
        upload, memory = work.run(method, x)
        for tensor in (*upload.values(), *memory.values()):
            assert tensor.device.type == "meta"
            assert tensor.shape == shape


def test_meta_does_refuse_to_mix():
    with pytest.raises(RuntimeError, match="device"):
        torch.empty(3, device="meta") + torch.ones(3)


def test_a_device_that_is_not_there_is_said_so():
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(InvalidInput, match="There is no device 'gpu'"):
        choose_device("gpu")
    for name in ("cuda", "mps"):
        if choose_device("auto").type != name:
            with pytest.raises(InvalidInput, match=f"device is '{name}', but torch finds none here"):
                fedtaco.run("fedavg", dataset="digits", rounds=1, local_steps=1, device=name)


def test_vectors_travel_and_come_home():
    model = FlatModel(build_model("mlp", (4,), 2, seed=0))
    assert model.move_batch((torch.ones(2, 4, dtype=torch.float64), torch.zeros(2)))[0].dtype == torch.float32
    assert Broadcast(model.vector).start is model.to_device({"start": model.vector})["start"]
