"""FedStrategy's public behaviour: settings, nodes that come and go, evaluation, and memory for uploads."""

from __future__ import annotations

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from nodes import arrays, client_app, history_of, run, small_model, small_nodes, small_strategy
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from fedtaco import InvalidInput, RunStopped, Taco
from fedtaco.flower import FedStrategy, train, upload_matrix
from fedtaco.flower.node_registry import NodeRegistry
from fedtaco.testing.small_federation import skewed_clients


def test_the_log_states_the_weighting_which_is_uniform_by_default(caplog):
    caplog.set_level("INFO", "flwr.fedtaco")
    run(small_strategy("taco"), small_nodes(), 1)
    assert any("Weighting: uniform, all replies count alike" in line for line in caplog.messages)
    run(small_strategy("taco", weighted_by_key="num-examples"), small_nodes(), 1)
    assert any("Weighting: by num-examples, as the nodes state it" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"local_steps": 0}, "local_steps is 0; it must be a whole number at least 1"),
        ({"local_lr": -1.0}, "local_lr is -1.0"),
        ({"fraction_train": 0.0}, "fraction_train is 0.0; it must be a number above 0 and at most 1"),
        ({"fraction_evaluate": 2.0}, "fraction_evaluate is 2.0; it must be a number at least 0 and at most 1"),
        ({"min_train_nodes": 0}, "min_train_nodes is 0; it must be a whole number at least 1"),
        ({"min_available_nodes": 0}, "min_available_nodes is 0; it must be a whole number at least 1"),
        ({"clients": 0}, "clients is 0; it must be a whole number at least 1"),
        ({"detector": "papr"}, "There is no detector 'papr'; did you mean 'paper'"),
    ],
)
def test_invalid_settings_are_rejected(options, words):
    with pytest.raises(InvalidInput, match=words.replace(".", r"\.")):
        small_strategy("taco", **options)


def test_mismatched_arguments_are_explained():
    with pytest.raises(InvalidInput, match="There is no method 'tako'; did you mean 'taco'"):
        small_strategy("tako")
    with pytest.raises(InvalidInput, match="initial_arrays do not fit the model"):
        small_strategy("taco").start(small_nodes(), arrays(nn.Linear(2, 2)), timeout=1)
    broken = small_model()
    nn.init.constant_(broken.bias, torch.nan)
    with pytest.raises(InvalidInput, match="The initial model contains nan in 'bias'"):
        small_strategy("taco").start(small_nodes(), arrays(broken), timeout=1)
    with pytest.raises(InvalidInput, match="train_config sets 'local-lr'"):
        run(small_strategy("taco"), small_nodes(), train_config=ConfigRecord({"local-lr": 0.3}))


def test_a_node_with_another_model_is_dropped_with_both_sizes():
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.apps[101] = client_app(nn.Linear(4, 2, dtype=torch.float64), skewed_clients()[0])
    run(strategy, nodes, 1)
    reason = history_of(strategy)[0].dropped[0]
    assert "has 10 numbers (torch.float64) in its trainable parameters, the server's has 15" in reason


def half_frozen(value):
    """Return a model whose first layer, filled with ``value``, is frozen."""
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.float64), small_model())
    nn.init.constant_(model[0].weight, value)
    nn.init.zeros_(model[0].bias)
    model[0].requires_grad_(False)
    return model


def test_frozen_parameters_must_equal_those_of_the_server():
    nodes = small_nodes()
    for place, (node, own) in enumerate(zip(nodes.nodes, skewed_clients(), strict=True)):
        nodes.apps[node] = client_app(half_frozen(0.5 if place else 0.25), own)
    strategy = FedStrategy("taco", half_frozen(0.25), local_steps=2, fraction_evaluate=0)
    strategy.start(nodes, arrays(half_frozen(0.5)), num_rounds=1, timeout=1)
    dropped = history_of(strategy)[0].dropped
    assert list(dropped) == [0]
    assert "frozen parameters of this node's model differ from those of the server's" in dropped[0]


def test_nodes_train_on_one_thread():
    threads = []

    def recording_loss(prediction, y):
        threads.append(torch.get_num_threads())
        return cross_entropy(prediction, y)

    app = ClientApp()

    @app.train()
    def handle(message, context):
        return train(small_model(), skewed_clients()[0], message, context, loss=recording_loss)

    nodes = small_nodes()
    nodes.apps = dict.fromkeys(nodes.nodes, app)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(small_strategy("fedavg"), nodes, 1)
        assert (set(threads), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_train_config_reaches_the_nodes():
    nodes = small_nodes()
    run(small_strategy("taco"), nodes, 1, train_config=ConfigRecord({"augment": "flip"}))
    assert {message.content["config"]["augment"] for message in nodes.sent} == {"flip"}
    assert {message.content["config"]["server-round"] for message in nodes.sent} == {1}


@pytest.mark.parametrize("wrap", [TensorDataset, lambda x, y: DataLoader(TensorDataset(x, y), 3)])
def test_datasets_and_loaders_train_as_tensors_do(wrap):
    plain, wrapped = small_nodes(), small_nodes()
    for node, own in zip(wrapped.nodes, skewed_clients(), strict=True):
        wrapped.apps[node] = client_app(small_model(), wrap(own.x, own.y))
    first, second = (run(small_strategy("taco"), nodes, 2).arrays.to_torch_state_dict() for nodes in (plain, wrapped))
    assert torch.equal(first["weight"], second["weight"])


def test_a_node_without_samples_is_dropped_with_that_reason():
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.apps[101] = client_app(small_model(), (torch.empty(0, 4), torch.empty(0, dtype=torch.int64)))
    run(strategy, nodes, 1)
    assert "This node has no samples" in history_of(strategy)[0].dropped[0]


# Nodes that come and go


def test_a_run_with_too_few_nodes_stops_after_the_timeout():
    with pytest.raises(RunStopped, match=r"Only 5 nodes were connected after 0\.2 seconds.*6 are wanted"):
        run(small_strategy("taco", min_available_nodes=6), small_nodes(), 1)


def test_a_node_may_connect_after_the_first_round():
    nodes, strategy = small_nodes(), small_strategy("taco", clients=5)
    nodes.connected = nodes.nodes[:3]

    def tamper(node, reply):
        nodes.connected = list(nodes.nodes)
        return [reply]

    nodes.tamper = tamper
    run(strategy, nodes, 2)
    assert [record.cohort for record in history_of(strategy)] == [3, 5]
    assert strategy.node_clients.nodes.nodes == nodes.nodes


def test_a_node_beyond_the_number_of_clients_takes_no_part(caplog):
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.connected = nodes.nodes[:4]
    nodes.tamper = lambda node, reply: [nodes.connected.append(105) or reply] if node == 101 else [reply]
    run(strategy, nodes, 3)
    assert [record.cohort for record in history_of(strategy)] == [4, 4, 4]
    assert sum("Node 105 takes no part: the run is for 4 clients" in line for line in caplog.messages) == 1


def test_a_node_that_disconnects_is_not_asked_and_keeps_its_client_number():
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.tamper = lambda node, reply: [_disconnect(nodes, reply) or reply]
    run(strategy, nodes, 3)
    clients = history_of(strategy).clients
    asked = [[record.client for record in clients if record.round == number] for number in (1, 2, 3)]
    assert asked == [[0, 1, 2, 3, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4]]


def _disconnect(nodes, reply):
    nodes.connected = [node for node in nodes.nodes if node != 103 or reply.metadata.group_id != "1"]


def test_nodes_keep_their_client_numbers():
    registry = NodeRegistry(3)
    assert registry.admit([30, 10]) == []
    assert registry.admit([20, 5, 10]) == [20]
    assert registry.nodes == [10, 30, 5]
    assert registry.connected_mask([5, 10, 99]).tolist() == [True, False, True]
    assert NodeRegistry.from_tensors(3, registry.to_tensors()).nodes == [10, 30, 5]
    assert NodeRegistry.from_tensors(2, NodeRegistry(2, [2**64 - 1]).to_tensors()).nodes == [2**64 - 1]


# Evaluation


def evaluating_app(samples, value):
    """Return a client app that reports ``value`` as its accuracy."""
    app = client_app(small_model(), samples)

    @app.evaluate()
    def evaluate(message, context):
        small_model().load_state_dict(message.content["arrays"].to_torch_state_dict())
        metrics = MetricRecord({"accuracy": value, "num-examples": len(samples)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def test_nodes_evaluate_the_model_in_their_own_architecture():
    nodes = small_nodes()
    for place, (node, own) in enumerate(zip(nodes.nodes, skewed_clients(), strict=True)):
        nodes.apps[node] = evaluating_app(own, place / 10)
    strategy = small_strategy("taco", fraction_evaluate=1.0)
    result = run(strategy, nodes, 2)
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == pytest.approx(0.2)
    assert history_of(strategy).column("accuracy") == pytest.approx([0.2, 0.2])
    assert result.train_metrics_clientapp[1]["num-examples"] == pytest.approx(12)


def test_an_app_that_cannot_evaluate_is_logged(caplog):
    strategy = small_strategy("taco", fraction_evaluate=0.4)
    result = run(strategy, small_nodes(), 1)
    assert result.evaluate_metrics_clientapp == {}
    assert sum("did not evaluate" in line for line in caplog.messages) == 2
    assert len(history_of(strategy)) == 1


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    strategy = small_strategy("taco", checkpoint=tmp_path / "run")
    with pytest.raises(RunStopped, match="Round 2 of taco: the global model's loss is not finite"):
        run(
            strategy,
            small_nodes(),
            3,
            evaluate_fn=lambda number, arrays: MetricRecord({"loss": float("nan") if number == 2 else 1.0}),
        )
    assert len(history_of(strategy)) == 1


def test_evaluations_every_few_rounds_by_nodes_and_server():
    nodes, strategy = small_nodes(), small_strategy("taco", fraction_evaluate=1.0, eval_every=2)
    for node, own in zip(nodes.nodes, skewed_clients(), strict=True):
        nodes.apps[node] = evaluating_app(own, 0.5)
    numbers = []
    result = run(strategy, nodes, 5, evaluate_fn=lambda number, _: numbers.append(number))
    assert numbers == [0, 2, 4, 5]
    assert list(result.evaluate_metrics_clientapp) == [2, 4, 5]
    assert history_of(strategy).column("accuracy") == [None, 0.5, None, 0.5, 0.5]
    every = run(small_strategy("taco"), small_nodes(), 5)
    assert_same_arrays(result.arrays, every.arrays)


def test_final_arrays_are_those_of_the_last_round_even_if_it_is_not_evaluated():
    strategy = small_strategy("taco", eval_every=10)
    result = run(strategy, small_nodes(), 3)
    assert_same_arrays(result.arrays, strategy.node_clients.arrays(strategy.recorder.state))
    shorter = run(small_strategy("taco"), small_nodes(), 2).arrays.to_torch_state_dict()
    assert not torch.equal(shorter["weight"], result.arrays.to_torch_state_dict()["weight"])


def assert_same_arrays(one, other):
    expected = other.to_torch_state_dict()
    for name, tensor in one.to_torch_state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_other_numbers_of_the_server_are_recorded_as_metrics():
    def evaluate(number, arrays):
        return MetricRecord({"accuracy": 0.5, "f1": 0.25 * number, "bad": float("nan"), "list": [1.0, 2.0]})

    strategy = small_strategy("taco")
    run(strategy, small_nodes(), 2, evaluate_fn=evaluate)
    assert [record.metrics for record in history_of(strategy)] == [{"f1": 0.25, "bad": None}, {"f1": 0.5, "bad": None}]
    assert history_of(strategy).column("loss") == [None, None]


def test_training_loss_is_a_metric_of_the_round():
    strategy = small_strategy("taco")
    result = run(strategy, small_nodes(), 2)
    losses = [record.quantities["training_loss"] for record in history_of(strategy).clients if record.round == 2]
    assert history_of(strategy)[1].training_loss == pytest.approx(sum(losses) / 5)
    assert result.train_metrics_clientapp[2]["training-loss"] == pytest.approx(sum(losses) / 5)


# Memory for uploads


def test_uploads_in_a_temporary_file_give_the_same_bits(monkeypatch):
    plain = run(small_strategy("scaffold"), small_nodes(), 3).arrays.to_torch_state_dict()
    monkeypatch.setattr(upload_matrix, "MAX_BYTES_IN_MEMORY", 0)
    nodes = small_nodes()
    in_file = run(small_strategy("scaffold"), nodes, 3).arrays.to_torch_state_dict()
    assert torch.equal(plain["weight"], in_file["weight"])


def test_too_many_uploads_for_the_disk_are_explained(monkeypatch):
    monkeypatch.setattr(upload_matrix, "MAX_BYTES_IN_MEMORY", 0)
    with pytest.raises(RunStopped, match=r"No room for 1000000 uploads, .* name another folder in TMPDIR"):
        upload_matrix.allocate_matrix(1_000_000, torch.empty(10_000_000))


def test_a_full_disk_stops_the_run(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(upload_matrix, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(upload_matrix.os, "posix_fallocate", full)
    with pytest.raises(RunStopped, match="No room for 5 uploads"):
        run(small_strategy("taco"), small_nodes(), 1)


def test_files_are_used_even_if_the_system_cannot_reserve_space(monkeypatch):
    monkeypatch.setattr(upload_matrix, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.delattr(upload_matrix.os, "posix_fallocate")
    matrix = upload_matrix.allocate_matrix(3, torch.empty(4))
    matrix[2] = 1.0
    assert matrix.sum() == 4


def test_the_code_of_the_documentation_runs():
    app = ClientApp()

    @app.train()
    def handle(msg, context):
        return train(small_model(), skewed_clients()[context.node_config["partition-id"]], msg, context)

    nodes = small_nodes()
    nodes.apps = dict.fromkeys(nodes.nodes, app)
    strategy = FedStrategy(method=Taco(), model=small_model(), local_steps=3, local_lr=0.1)
    result = strategy.start(grid=nodes, initial_arrays=ArrayRecord(small_model().state_dict()), num_rounds=2, timeout=1)
    assert not torch.equal(result.arrays.to_torch_state_dict()["weight"], small_model().weight)


def test_a_checkpoint_without_its_nodes_is_refused():
    another_run = {"other": torch.zeros(3)}
    with pytest.raises(InvalidInput, match="does not say which node is which client"):
        NodeRegistry.from_tensors(3, another_run)
    restored = NodeRegistry.from_tensors(3, NodeRegistry(3, [7, 8], [2, 0]).to_tensors())
    assert (restored.nodes, restored.last_used) == ([7, 8], [2, 0, 0])
