"""Personal layers on Flower: nodes keep them, nothing of them is sent, and the results are those of the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from nodes import Nodes, arrays, client_app, history_of, run, small_model, small_nodes, small_strategy
from run_helpers import assert_same_model
from torch import nn

import fedtaco
from fedtaco import InvalidInput
from fedtaco.flower import FedStrategy, receive_model
from fedtaco.methods import METHODS
from fedtaco.testing.small_federation import LOCAL_LR, STEPS, skewed_clients

ROUNDS = 4
NPY_HEADER = 128
"""Bytes that numpy's format adds to the numbers of an array."""


def evaluating_nodes(**options):
    """Return nodes that evaluate their own model on their own samples, and a list of the models they evaluate."""
    nodes, evaluated = small_nodes(**options), []
    for node, samples in zip(nodes.nodes, skewed_clients(), strict=True):
        nodes.apps[node] = app = client_app(small_model(), samples)

        @app.evaluate()
        def evaluate(message: Message, context: Context, samples=samples) -> Message:
            model = receive_model(small_model(), message, context)
            evaluated.append(model)
            correct = (model(samples.x).argmax(1) == samples.y).double().mean()
            metrics = MetricRecord({"accuracy": float(correct), "num-examples": len(samples)})
            return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return nodes, evaluated


def simulate(method, **options):
    samples = [(own.x, own.y) for own in skewed_clients()]
    given = {"rounds": ROUNDS, "local_steps": STEPS, "batch_size": 4, "local_lr": LOCAL_LR, "engine": "serial"}
    return fedtaco.train(small_model(), samples, method=method, personal="bias", **{**given, **options})


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=str)
def test_every_method_ends_with_the_models_of_the_simulator(method):
    nodes, evaluated = evaluating_nodes()
    strategy = small_strategy(method, personal="bias", fraction_evaluate=1.0)
    result = run(strategy, nodes, ROUNDS)
    simulation = simulate(method)
    trained = result.arrays.to_torch_state_dict()
    assert torch.equal(trained["weight"], simulation.model.weight)
    assert torch.equal(trained["bias"], small_model().bias)
    for client, model in enumerate(evaluated[-5:]):
        assert_same_model(simulation.client_model(client), model)
    biases = torch.stack([model.bias for model in evaluated[-5:]])
    assert len(biases.unique(dim=0)) == 5
    accuracies = [
        (m(own.x).argmax(1) == own.y).double().mean() for m, own in zip(evaluated[-5:], skewed_clients(), strict=True)
    ]
    assert history_of(strategy).final_accuracy == pytest.approx(float(torch.stack(accuracies).mean()))


@pytest.mark.parametrize("settings", [{"momentum": 0.9, "lr_schedule": "cosine"}, {"optimizer": "adam"}], ids=str)
def test_local_optimizers_train_personal_layers_as_in_the_simulator(settings):
    nodes, evaluated = evaluating_nodes()
    options = {"clip_norm": 0.5, "weight_decay": 0.01, **settings}
    run(small_strategy("taco", personal="bias", fraction_evaluate=1.0, **options), nodes, ROUNDS)
    simulation = simulate("taco", **options)
    for client, model in enumerate(evaluated[-5:]):
        assert_same_model(simulation.client_model(client), model)


def test_the_layers_of_the_last_used_reply_are_kept():
    """Node 103's replies to rounds 2 and 3 are lost, so that it evaluates and continues with its layers of round 1."""
    nodes, evaluated = evaluating_nodes()
    nodes.tamper = lambda node, reply: (
        []
        if node == 103 and reply.metadata.message_type == "train" and reply.metadata.group_id in ("2", "3")
        else [reply]
    )
    run(small_strategy("scaffold", personal="bias", fraction_evaluate=1.0), nodes, ROUNDS)
    of_node = [model.bias for model in evaluated[2::5]]
    assert torch.equal(of_node[0], of_node[1])
    assert torch.equal(of_node[0], of_node[2])
    assert not torch.equal(of_node[0], of_node[3])
    others = [model.bias for model in evaluated[1::5]]
    assert len(torch.stack(others).unique(dim=0)) == ROUNDS


def test_an_interrupted_run_continues_with_the_layers_in_the_folders_of_the_nodes(tmp_path):
    configs = [{"partition-id": place, "memory-dir": str(tmp_path / f"memory{place}")} for place in range(5)]
    settings = {"personal": "bias", "fraction_evaluate": 1.0, "checkpoint": tmp_path / "run"}
    nodes, _ = evaluating_nodes(configs=configs)

    class PowerCut(BaseException):
        """Interrupts the run after the nodes have trained in round 3."""

    def cut(node, reply):
        if reply.metadata.group_id == "3" and node == nodes.nodes[-1]:
            raise PowerCut
        return [reply]

    nodes.tamper = cut
    with pytest.raises(PowerCut):
        run(small_strategy("taco", **settings), nodes, ROUNDS)
    nodes, evaluated = evaluating_nodes(configs=configs)
    run(small_strategy("taco", **settings), nodes, ROUNDS)
    simulation = simulate("taco")
    for client, model in enumerate(evaluated[-5:]):
        assert_same_model(simulation.client_model(client), model)


# What is sent


class Partial(nn.Module):
    """A frozen layer, a shared one with batch norm, and a personal head."""

    def __init__(self):
        super().__init__()
        self.base, self.shared, self.norm = nn.Linear(40, 30), nn.Linear(30, 20), nn.BatchNorm1d(20)
        self.head = nn.Linear(20, 10)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.head(self.norm(self.shared(torch.relu(self.base(x)))))


def array_bytes(message):
    return {
        f"{name}/{key}": len(array.data) - NPY_HEADER
        for name, record in message.content.array_records.items()
        for key, array in record.items()
    }


def test_messages_contain_the_shared_layers_only():
    torch.manual_seed(0)
    model = Partial()
    samples = [(torch.randn(12, 40), torch.randint(0, 10, (12,))) for _ in range(3)]
    nodes, received = Nodes([client_app(model, own) for own in samples]), []
    for app in nodes.apps.values():

        @app.evaluate()
        def evaluate(message, context):
            receive_model(model, message, context)
            return Message(RecordDict({"metrics": MetricRecord({"accuracy": 1.0})}), reply_to=message)

    nodes.tamper = lambda node, reply: [received.append(reply) or reply]
    strategy = FedStrategy("fedavg", model, local_steps=2, batch_size=4, personal="head.*")
    strategy.start(nodes, arrays(model), num_rounds=2, timeout=1)
    assert history_of(strategy).final_accuracy == 1.0
    weights, buffers = 4 * (30 * 20 + 20 + 20 + 20), 4 * (20 + 20)
    for message, reply in zip(nodes.sent, received, strict=True):
        if message.metadata.message_type == "train":
            assert array_bytes(message) == {"arrays/start": weights, "buffers/buffers": buffers}
            assert array_bytes(reply) == {"arrays/update": weights, "buffers/buffers": buffers}
        else:
            assert sum(array_bytes(message).values()) == weights + buffers + 8
            assert not [name for name in array_bytes(message) if "head" in name or "base" in name]


def test_only_adapters_of_a_transformer_are_sent(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    from adapters import TOPICS, Encoder, draw_texts

    torch.manual_seed(0)
    model, samples = Encoder(), [draw_texts(20, torch.randperm(TOPICS)) for _ in range(2)]
    nodes, received = Nodes([client_app(model, own) for own in samples]), []
    nodes.tamper = lambda node, reply: [received.append(reply) or reply]
    strategy = FedStrategy("fedavg", model, local_steps=1, batch_size=8, personal="head.*", fraction_evaluate=0)
    trained = strategy.start(nodes, arrays(model), num_rounds=1, timeout=1).arrays.to_torch_state_dict()
    adapters = {name: p for name, p in model.named_parameters() if "adapter" in name}
    size = 4 * sum(p.numel() for p in adapters.values())
    assert size == 4 * 3 * 2 * 32 * 4
    for message, reply in zip(nodes.sent, received, strict=True):
        assert array_bytes(message) == {"arrays/start": size}
        assert array_bytes(reply) == {"arrays/update": size}
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, trained[name])}
    assert changed == {name for name in adapters if "1.weight" in name}  # the others have no gradient in the first step


# Nodes that do not fit


def evaluation_message(**settings):
    """Return an evaluation message of a finished run, and the context of its node."""
    nodes, _ = evaluating_nodes()
    run(small_strategy("fedavg", fraction_evaluate=1.0, **settings), nodes, 1)
    message = next(sent for sent in nodes.sent if sent.metadata.message_type == "evaluate")
    return message, nodes.contexts[nodes.nodes[0]]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Linear(4, 5, dtype=torch.float64), "The model of this node differs from the server's"),
        (nn.Linear(4, 3), "The model of this node differs from the server's"),
        (nn.Linear(4, 3, bias=False, dtype=torch.float64), "personal is 'bias', which matches no trainable parameter"),
        (nn.Linear(400, 300, dtype=torch.float64), "The model of this node differs from the server's"),
    ],
)
def test_another_model_is_refused(model, reason):
    message, context = evaluation_message(personal="bias")
    with pytest.raises(InvalidInput, match=reason):
        receive_model(model, message, context)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("run", "../..", "run is '../..'; it must be text of the form"),
        ("client", -1, "client is -1; it must be a whole number at least 0"),
        ("memory-round", "1", "memory-round is '1'; it must be a whole number"),
        ("personal", 3, "personal is 3; it must be a list of names"),
    ],
)
def test_invalid_entries_are_refused(key, value, reason):
    message, context = evaluation_message(personal="bias")
    message.content["config"][key] = value
    with pytest.raises(InvalidInput, match=reason):
        receive_model(small_model(), message, context)


def test_a_node_that_lost_its_layers_does_not_evaluate_others():
    message, context = evaluation_message(personal="bias")
    forgetful = Context(1, 101, context.node_config, RecordDict(), {})
    with pytest.raises(InvalidInput, match="This node has lost its personal layers of round 1; give it a folder"):
        receive_model(small_model(), message, forgetful)


def test_a_message_of_another_strategy_is_refused():
    message, context = evaluation_message()
    del message.content["config"]["memory-round"]
    with pytest.raises(InvalidInput, match="The message lacks 'memory-round': it is not from fedtaco"):
        receive_model(small_model(), message, context)


def test_more_arrays_than_the_model_has_are_refused():
    message, context = evaluation_message()
    content = dict(arrays(small_model()))
    message.content["arrays"] = type(message.content["arrays"])({**content, "surprise": content["bias"]})
    with pytest.raises(InvalidInput, match="arrays has 3 arrays instead of at most 2"):
        receive_model(small_model(), message, context)


def test_a_model_without_personal_layers_is_received_as_it_is():
    message, context = evaluation_message()
    model = receive_model(small_model(), message, context)
    assert not model.training
    sent = message.content["arrays"].to_torch_state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, sent[name])


def test_keys_of_the_strategy_cannot_be_set_by_users():
    strategy = small_strategy("fedavg", fraction_evaluate=1.0)
    with pytest.raises(InvalidInput, match="evaluate_config sets 'client', a key that FedStrategy itself sends"):
        run(strategy, small_nodes(), 1, evaluate_config=ConfigRecord({"client": 3}))
