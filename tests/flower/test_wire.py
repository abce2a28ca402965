"""What crosses the network is what the method states, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from nodes import Nodes, arrays, client_app, small_nodes
from torch import nn

import fedtaco.flower
from fedtaco.flower import FedStrategy
from fedtaco.flower.wire import OWN_KEYS, Task
from fedtaco.methods import METHODS, Setting

HEADER = 128
"""Bytes of numpy's own beside an array's numbers."""
TALK = 1024
"""Bytes that the names, settings and marks of a message may take."""


@pytest.mark.parametrize("method", METHODS)
def test_a_round_costs_the_bytes_that_the_method_states(method):
    model = nn.Linear(2000, 5)
    size = sum(parameter.numel() for parameter in model.parameters()) * 4
    samples = [(torch.randn(8, 2000), torch.randint(0, 5, (8,))) for _ in range(3)]
    nodes = Nodes([client_app(model, own) for own in samples])
    received = []
    nodes.tamper = lambda node, reply: [received.append(reply) or reply]
    strategy = FedStrategy(method, model, local_steps=2, batch_size=4, fraction_evaluate=0)
    strategy.start(nodes, arrays(model), num_rounds=2, timeout=1)
    cost = METHODS[method].cost
    for message, reply in zip(nodes.sent, received, strict=True):
        (down, told), (up, said) = weight(message), weight(reply)
        assert down == cost.down * (size + HEADER)
        assert up == cost.up * (size + HEADER)
        assert told + said < TALK
        numbers = [name for name in message.content["config"] if name.startswith("number.")]
        assert len(numbers) == cost.scalars_down


def weight(message):
    """Bytes of the arrays of a message, and of its other records."""
    records = list(message.content.values())
    vectors = sum(len(array.data) for record in records if isinstance(record, ArrayRecord) for array in record.values())
    return vectors, sum(record.count_bytes() for record in records if not isinstance(record, ArrayRecord))


def test_each_node_is_sent_its_own_alpha_and_the_same_vectors():
    nodes = small_nodes()
    strategy = fedtaco.flower.FedStrategy(
        "taco", nn.Linear(4, 3, dtype=torch.float64), local_steps=3, fraction_evaluate=0
    )
    strategy.start(nodes, arrays(strategy.model), num_rounds=2, timeout=1)
    second = nodes.sent[5:]
    alphas = [message.content["config"]["number.alpha"] for message in second]
    assert len(set(alphas)) == 5
    assert alphas == [record.alpha for record in strategy._run.recording.history.clients[:5]]
    assert len({id(message.content["vectors"]) for message in second}) == 1


def test_a_task_survives_its_record():
    setting = Setting(clients=3, rounds=4, local_steps=5, local_lr=0.1, server_lr=0.7)
    task = Task("survey", 2, "ab12", 1, 1, "taco", {"taco.gamma": 0.1}, setting, 8, 3, "cd34", {"alpha": 0.25})
    record = ConfigRecord(task.config())
    assert Task.of(record) == task
    plain = {name for name in record if "." not in name}
    assert plain == OWN_KEYS | {"server-round"}


def test_only_flowers_public_names_are_used():
    public = {"flwr.app", "flwr.serverapp", "flwr.clientapp", "flwr.serverapp.strategy"}
    root = Path(fedtaco.flower.__file__).parent
    for path in root.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                assert name in public or not (name or "").startswith("flwr"), f"{path.name}: {name}"
