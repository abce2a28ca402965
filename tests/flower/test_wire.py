"""What crosses the network: exactly what the method declares, and every setting that nodes need."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from nodes import Nodes, arrays, client_app, history_of, run, small_model, small_nodes
from torch import nn

import fedtaco.flower
from fedtaco import InvalidInput
from fedtaco.client import ClientRunner
from fedtaco.flower import FedStrategy, train
from fedtaco.flower.wire import OPTIONAL_SETTINGS, RESERVED_KEYS, NodeInstructions, wire_key
from fedtaco.local_optimizer import Sgd
from fedtaco.lr_schedule import StepDecay
from fedtaco.methods import METHODS, Constants
from fedtaco.settings.declarations import RunSettings, declared
from fedtaco.testing.small_federation import skewed_clients

NPY_HEADER = 128
"""Bytes that numpy's format adds to the numbers of an array."""
MAX_OVERHEAD = 1024
"""Bytes that the names, settings and headers of a message and its reply may take."""
ON_WIRE = {name for name, (_, setting) in declared(RunSettings).items() if setting.on_wire}


@pytest.mark.parametrize("method", METHODS)
def test_a_round_sends_as_many_bytes_as_the_method_declares(method):
    model = nn.Linear(2000, 5)
    size = sum(parameter.numel() for parameter in model.parameters()) * 4
    samples = [(torch.randn(8, 2000), torch.randint(0, 5, (8,))) for _ in range(3)]
    nodes = Nodes([client_app(model, own) for own in samples])
    received = []
    nodes.tamper = lambda node, reply: [received.append(reply) or reply]
    strategy = FedStrategy(method, model, local_steps=2, batch_size=4, fraction_evaluate=0)
    strategy.start(nodes, arrays(model), num_rounds=2, timeout=1)
    cost, visits = METHODS[method].cost, 2 * len(samples)
    total_down = total_up = scalars_down = 0
    for message, reply in zip(nodes.sent, received, strict=True):
        (down, overhead_down), (up, overhead_up) = count_bytes(message), count_bytes(reply)
        assert overhead_down + overhead_up < MAX_OVERHEAD
        total_down, total_up = total_down + down, total_up + up
        scalars_down += sum(name.startswith("scalar.") for name in message.content["config"])
    assert total_down == visits * cost.down * (size + NPY_HEADER)
    assert total_up == visits * cost.up * (size + NPY_HEADER)
    assert scalars_down == visits * cost.scalars_down


def count_bytes(message):
    """Return the bytes of a message's arrays, and those of its other records."""
    records = list(message.content.values())
    vectors = sum(len(array.data) for record in records if isinstance(record, ArrayRecord) for array in record.values())
    return vectors, sum(record.count_bytes() for record in records if not isinstance(record, ArrayRecord))


def test_each_node_receives_its_own_alpha_and_the_same_vectors():
    nodes = small_nodes()
    strategy = FedStrategy("taco", small_model(), local_steps=3, fraction_evaluate=0)
    strategy.start(nodes, arrays(strategy.model), num_rounds=2, timeout=1)
    second_round = nodes.sent[5:]
    alphas = [message.content["config"]["scalar.alpha"] for message in second_round]
    assert len(set(alphas)) == 5
    assert alphas == [record.quantities["alpha"] for record in history_of(strategy).clients[:5]]
    assert len({id(message.content["vectors"]) for message in second_round}) == 1


SETTINGS = {
    "batch_size": 5,
    "clients": 106,
    "clip_norm": 3.5,
    "compress": "topk:0.45",
    "local_epochs": 4,
    "local_lr": 0.03,
    "local_steps": 7,
    "lr_schedule": "step:8,0.3",
    "momentum": 0.9,
    "nesterov": True,
    "optimizer": "sgd",
    "personal": "bias",
    "rounds": 109,
    "seed": 11,
    "server_lr": 0.4,
    "weight_decay": 0.01,
}
"""A value for every setting on the wire; no two are equal, and all but ``optimizer`` differ from the default."""


def instructions(**settings):
    """Return instructions in which no two values are equal."""
    assert set(SETTINGS) == ON_WIRE
    return NodeInstructions(
        phase="survey",
        round=12,
        run="ab12",
        client=1,
        memory_round=3,
        work_share=0.75,
        method="taco",
        frozen="cd34",
        settings={**SETTINGS, **settings},
        parameters={"taco.gamma": 0.2, "stem.server_momentum": "eta"},
        scalars={"alpha": 0.25},
    )


@pytest.mark.parametrize("settings", [{}, dict.fromkeys(OPTIONAL_SETTINGS)], ids=["all", "optional settings omitted"])
def test_instructions_survive_the_config_record(settings):
    sent = instructions(**settings)
    received = NodeInstructions.from_config(ConfigRecord(sent.to_config()))
    assert received == sent
    assert received.to_config() == sent.to_config()


def test_the_keys_of_the_config_are_those_users_must_not_set():
    plain = {name for name in instructions().to_config() if "." not in name}
    assert plain == RESERVED_KEYS | {"server-round"}
    single = {field.name for field in fields(NodeInstructions)} - {"settings", "parameters", "scalars"}
    assert len(plain) == len(single | ON_WIRE) == len(single) + len(ON_WIRE)


@pytest.mark.parametrize("key", instructions().to_config())
def test_every_key_of_the_config_is_read(key):
    """Without a key, the instructions differ or cannot be read: nothing is sent in vain."""
    sent = instructions()
    config = {name: value for name, value in sent.to_config().items() if name != key}
    if "." in key or key in {wire_key(name) for name in OPTIONAL_SETTINGS}:
        assert NodeInstructions.from_config(config) != sent
    else:
        with pytest.raises(InvalidInput, match=f"The message lacks '{key}'"):
            NodeInstructions.from_config(config)


def test_every_setting_on_the_wire_reaches_the_node(monkeypatch):
    """Each setting has a value that differs from its default, and is read where the node trains."""
    expected = {**SETTINGS, "clients": 5, "rounds": 2}
    given = {name: value for name, value in SETTINGS.items() if name not in ("clients", "rounds")}
    received, configs = [], []

    class RecordingRunner(ClientRunner):
        def run(self, method, instructions, job):
            configs.append((self.config, self.model.personal_names, job.steps))
            return super().run(method, instructions, job)

    monkeypatch.setattr("fedtaco.flower.client.ClientRunner", RecordingRunner)
    app = ClientApp()

    @app.train()
    def handle(message, context):
        received.append(NodeInstructions.from_config(message.content["config"]).settings)
        return train(small_model(), skewed_clients()[0], message, context)

    nodes = small_nodes()
    nodes.apps = dict.fromkeys(nodes.nodes, app)
    run(FedStrategy("taco", small_model(), fraction_evaluate=0, **given), nodes, 2)
    assert received == [expected] * 10
    assert len(configs) == 10
    constants = Constants(
        clients=5,
        rounds=2,
        local_steps=7,
        local_lr=0.03,
        server_lr=0.4,
        optimizer=Sgd(weight_decay=0.01, clip_norm=3.5, momentum=0.9, nesterov=True),
        lr_schedule=StepDecay(every=8, decay=0.3),
    )
    for config, personal, steps in configs:
        assert (config.constants, config.batch_size, config.seed, personal) == (constants, 5, 11, {"bias"})
        assert steps == 7  # four epochs of 12 samples would take 10


@pytest.mark.parametrize(("samples", "steps"), [(1, 1), (5, 4), (6, 5), (8, 7), (9, 7), (10**6, 7)])
def test_a_node_takes_the_steps_of_its_epochs_but_not_more_than_local_steps(samples, steps):
    by_epochs, by_steps = (replace(instructions(**own), work_share=1.0) for own in ({}, {"local_epochs": None}))
    assert by_epochs.local_steps(samples) == steps
    assert by_steps.local_steps(samples) == 7


@pytest.mark.parametrize(("share", "steps"), [(1.0, 4), (0.75, 3), (0.5, 2), (0.1, 1)])
def test_a_node_takes_its_share_of_its_own_steps(share, steps):
    """Four epochs of 5 samples, in batches of 5, are 4 steps; ``local_steps`` is 7."""
    node = replace(instructions(), work_share=share)
    assert node.local_steps(5) == steps
    assert replace(node, settings={**SETTINGS, "local_epochs": None}).local_steps(5) == round(share * 7)


def test_only_public_names_of_flower_are_used():
    public = {"flwr.app", "flwr.serverapp", "flwr.clientapp", "flwr.serverapp.strategy"}
    root = Path(fedtaco.flower.__file__).parent
    for path in root.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name in public or not (name or "").startswith("flwr"), f"{path.name}: {name}"
