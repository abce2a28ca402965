"""Devices. Tests run without an accelerator; the device ``meta``, which cannot be mixed with the CPU, replaces it."""

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


def round_on_meta(method):
    """Return a runner whose model is on ``meta``, and the instructions and jobs of a round, which are on the CPU."""
    model = FlatModel(build_model("mlp", (1, 8, 8), 10, seed=0))
    model_on_meta = FlatModel(model.module, torch.device("meta"))
    constants = Constants(CLIENTS, 1, STEPS, 0.1)
    samples = TensorSamples(torch.rand(30, 1, 8, 8), torch.arange(30) % 10)
    runner = ClientRunner(
        model_on_meta, dict.fromkeys(range(CLIENTS), samples), ClientConfig(constants, 8, cross_entropy, 0)
    )
    server = fedtaco.methods.ServerState(model.vector, method.server_memory(model.vector, constants))
    instructions = Instructions("train", 1, method.broadcast(server, torch.arange(CLIENTS)), model.buffers)
    memory = method.client_memory(model.vector, constants)
    return runner, instructions, [ClientJob(row, row, STEPS, memory) for row in range(CLIENTS)]


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_clients_compute_on_the_device_of_the_model(method):
    runner, instructions, jobs = round_on_meta(method)
    single = _SingleClient(runner, instructions, jobs[0])
    stack = Stack(_LayersByHand(_plain_layers(runner.model), _cross_entropy_slope), by_hand=True)
    stacked = _StackedClients(runner, instructions, jobs, stack)
    size = runner.model.vector.numel()
    for training, x, shape in (
        (single, runner.model.vector, (size,)),
        (stacked, torch.empty(CLIENTS, size, device="meta"), (CLIENTS, size)),
    ):
        upload, memory = training.run(method, x)
        for tensor in (*upload.values(), *memory.values()):
            assert tensor.device.type == "meta"
            assert tensor.shape in (shape, (*shape[:-1], 1))


def test_meta_cannot_be_mixed_with_the_cpu():
    with pytest.raises(RuntimeError, match="device"):
        torch.empty(3, device="meta") + torch.ones(3)


def test_missing_device_is_reported():
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(InvalidInput, match="There is no device 'gpu'"):
        choose_device("gpu")
    for name in ("cuda", "mps"):
        if choose_device("auto").type != name:
            with pytest.raises(InvalidInput, match=f"device is '{name}', but torch finds no such device"):
                fedtaco.run("fedavg", dataset="digits", rounds=1, local_steps=1, device=name)


def test_batches_are_converted_and_vectors_are_not_copied_needlessly():
    model = FlatModel(build_model("mlp", (4,), 2, seed=0))
    assert model.move_batch((torch.ones(2, 4, dtype=torch.float64), torch.zeros(2)))[0].dtype == torch.float32
    assert Broadcast(model.vector).start is model.to_device({"start": model.vector})["start"]
