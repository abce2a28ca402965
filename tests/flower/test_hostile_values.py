"""Replies that are well formed but harmful: variances, other vectors than the update, scale, and evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from nodes import Nodes, arrays, client_app, copy_reply, history_of, run, small_nodes, small_strategy
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco import InvalidInput
from fedtaco.flower import FedStrategy
from fedtaco.testing.small_federation import CLASSES, FEATURES, LOCAL_LR, STEPS, skewed_clients
from fedtaco.trust import Detector, Guard, Verdict

HOSTILE, CLIENT, ROUNDS = 103, 2, 4


def changed(reply, record, name, change):
    """Return a copy of a reply in which one array is changed."""
    answer = copy_reply(reply)
    own = dict(answer.content[record].items())
    own[name] = Array(np.ascontiguousarray(change(own[name].numpy())))
    answer.content[record] = ArrayRecord(own)
    return [answer]


def batch_norm_model():
    torch.manual_seed(0)
    layers = nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, CLASSES)
    return nn.Sequential(*layers).double()


def central_loss(model, samples):
    x, y = samples.x, samples.y

    def evaluate(number, weights):
        model.load_state_dict(weights.to_torch_state_dict())
        with torch.no_grad():
            return MetricRecord({"loss": float(cross_entropy(model.eval()(x), y))})

    return evaluate


@pytest.mark.parametrize("detector", ["off", "norm", "guard"])
def test_negative_variances_are_dropped_and_the_run_goes_on(detector, lines):
    nodes = Nodes([client_app(batch_norm_model(), samples) for samples in skewed_clients()])
    nodes.tamper = lambda node, reply: (
        changed(reply, "buffers", "buffers", lambda values: -np.abs(values)) if node == HOSTILE else [reply]
    )
    strategy = FedStrategy(
        "fedavg",
        batch_norm_model(),
        local_steps=STEPS,
        batch_size=4,
        local_lr=LOCAL_LR,
        fraction_evaluate=0.0,
        detector=detector,
    )
    evaluate = central_loss(batch_norm_model(), skewed_clients()[0])
    strategy.start(nodes, arrays(strategy.model), num_rounds=ROUNDS, timeout=0.2, evaluate_fn=evaluate)
    history = history_of(strategy)
    assert [record.dropped for record in history] == [{CLIENT: "a variance in the buffers is negative"}] * ROUNDS
    assert all(math.isfinite(record.loss) for record in history)
    assert any(f"node {HOSTILE} (client {CLIENT})" in line and "variance" in line for line in lines)


def test_every_vector_of_an_upload_is_screened(lines):
    nodes, strategy = small_nodes(), small_strategy("scaffold")
    noise = np.random.default_rng(0)
    nodes.tamper = lambda node, reply: (
        changed(reply, "arrays", "variate_change", lambda values: 100 * noise.standard_normal(values.shape))
        if node == HOSTILE
        else [reply]
    )
    run(strategy, nodes, ROUNDS)
    for record in history_of(strategy):
        assert list(record.dropped) == [CLIENT]
        assert record.dropped[CLIENT].startswith("the norm of variate_change is ")
    assert float(strategy.recorder.state.server.memory["variate"].norm()) < 10
    assert any(f"node {HOSTILE} (client {CLIENT}) is dropped: the norm of variate_change" in line for line in lines)


@pytest.mark.parametrize("factor", [100, 9000])
def test_a_scaled_upload_is_dropped_by_default(factor):
    nodes, strategy = small_nodes(), small_strategy("fedavg")
    nodes.tamper = lambda node, reply: (
        changed(reply, "arrays", "update", lambda values: factor * values) if node == HOSTILE else [reply]
    )
    run(strategy, nodes, ROUNDS)
    assert [list(record.dropped) for record in history_of(strategy)] == [[CLIENT]] * ROUNDS


def test_a_round_that_breaks_the_model_is_repeated_and_logged(lines):
    nodes, strategy = small_nodes(), small_strategy("fedavg", detector="norm")
    nodes.tamper = lambda node, reply: (
        changed(reply, "arrays", "update", lambda values: 4 * values)
        if node == HOSTILE and reply.metadata.group_id == "2"
        else [reply]
    )
    evaluations = []

    def evaluate(number, weights):
        evaluations.append(number)
        broken = number == 2 and evaluations.count(2) == 1
        return MetricRecord({"accuracy": 0.5, "loss": math.nan if broken else 1.0})

    result = run(strategy, nodes, ROUNDS, evaluate_fn=evaluate)
    assert evaluations == [0, 1, 2, 2, 3, 4]
    history = history_of(strategy)
    assert [list(record.dropped) for record in history] == [[], [CLIENT], [], []]
    assert history[1].dropped[CLIENT].startswith("the global model's loss is not finite with this upload")
    assert strategy.node_clients.nodes.last_used[CLIENT] == ROUNDS
    assert any(f"node {HOSTILE} (client {CLIENT}) is dropped: the global model's loss" in line for line in lines)
    for name, tensor in result.arrays.to_torch_state_dict().items():
        assert torch.equal(tensor, strategy.node_clients.arrays(strategy.recorder.state).to_torch_state_dict()[name])


def evaluating_nodes(hostile_metrics):
    """Return nodes of which one reports its own metrics in evaluations."""
    nodes = small_nodes()
    for node in nodes.nodes:
        honest = {"accuracy": 0.5, "loss": 0.7, "num-examples": 10}
        own = {**honest, **hostile_metrics} if node == HOSTILE else honest

        def evaluate(message, context, own=own):
            return Message(RecordDict({"metrics": MetricRecord(own)}), reply_to=message)

        nodes.apps[node].evaluate()(evaluate)
    return nodes


@pytest.mark.parametrize(
    ("metrics", "complaint"),
    [
        ({"accuracy": 1e299}, "accuracy is 1e+299"),
        ({"accuracy": math.nan}, "accuracy is nan"),
        ({"loss": math.nan}, "loss is nan"),
        ({"loss": math.inf}, "loss is inf"),
    ],
)
@pytest.mark.parametrize("key", [None, "num-examples"])
def test_an_invalid_evaluation_is_ignored_and_its_node_reported(metrics, complaint, key, lines):
    strategy = small_strategy("fedavg", fraction_evaluate=1.0, weighted_by_key=key)
    run(strategy, evaluating_nodes(metrics), 2)
    history = history_of(strategy)
    assert history.column("accuracy") == pytest.approx([0.5, 0.5])
    assert history.column("loss") == pytest.approx([0.7, 0.7])
    assert f"Round 1: in the evaluation of node {HOSTILE}, {complaint}." in lines


def test_an_impossible_number_of_samples_does_not_decide_an_evaluation(lines):
    strategy = small_strategy("fedavg", fraction_evaluate=1.0, weighted_by_key="num-examples")
    run(strategy, evaluating_nodes({"accuracy": 0.0, "num-examples": 10**15}), 1)
    assert history_of(strategy).final_accuracy == pytest.approx(0.5)
    assert f"Round 1: in the evaluation of node {HOSTILE}, num-examples is 1000000000000000." in lines


def changing_losses(losses):
    """Return nodes that report the losses of their client, one per round, with one hostile number of examples."""
    nodes = small_nodes()
    for client, node in enumerate(nodes.nodes):

        def evaluate(message, context, own=losses[client], count=10**9 if node == HOSTILE else 10):
            loss = own[message.content["config"]["server-round"] - 1]
            return Message(
                RecordDict({"metrics": MetricRecord({"loss": loss, "num-examples": count})}), reply_to=message
            )

        nodes.apps[node].evaluate()(evaluate)
    return nodes


@dataclass(frozen=True)
class StrikesEverybody(Detector):
    name = "strikes-everybody"
    summary = "gives every client a strike and drops nothing"

    def judge(self, memory, given):
        strikes, count = memory["strikes"].clone(), len(given.uploads.clients)
        strikes[given.uploads.clients] += 1
        return Verdict({**memory, "strikes": strikes}, torch.zeros(count, dtype=torch.bool), [], [{}] * count)


@pytest.mark.parametrize("lie", [0.0, 1e-12])
def test_a_false_loss_with_very_many_samples_does_not_suspend_strikes(lie):
    honest = [0.9, 0.8, 0.7, 0.6, 0.5]
    losses = [honest, honest, [0.9, lie, 0.7, 0.6, 0.5], honest, honest]
    strategy = small_strategy(
        "fedavg", fraction_evaluate=1.0, weighted_by_key="num-examples", detector=StrikesEverybody()
    )
    run(strategy, changing_losses(losses), 5)
    assert strategy.recorder.state.detector_memory["strikes"].tolist() == [5] * 5
    assert history_of(strategy).column("loss")[1] < 1e-6


def test_strikes_are_suspended_while_most_nodes_measure_a_broken_model():
    losses = [[loss, 20 * loss, 20 * loss, loss, loss] for loss in (0.001, 0.4, 0.5, 0.5, 0.5)]
    losses[CLIENT] = [0.5, 0.0, 0.0, 0.0, 0.0]
    strategy = small_strategy(
        "fedavg", fraction_evaluate=1.0, weighted_by_key="num-examples", detector=StrikesEverybody()
    )
    run(strategy, changing_losses(losses), 5)
    assert strategy.recorder.state.detector_memory["strikes"].tolist() == [3] * 5


def test_a_resumed_run_knows_the_losses_of_the_nodes(tmp_path):
    losses = [[loss, 20 * loss, 15 * loss, 12 * loss, loss] for loss in (0.001, 0.4, 0.5, 0.5, 0.5)]
    options = {"fraction_evaluate": 1.0, "detector": StrikesEverybody(), "checkpoint": tmp_path / "run"}
    nodes = changing_losses(losses)

    def cut(node, reply):
        if reply.metadata.group_id == "3":
            raise KeyboardInterrupt
        return [reply]

    nodes.tamper = cut
    with pytest.raises(KeyboardInterrupt):
        run(small_strategy("fedavg", **options), nodes, 5)
    resumed = small_strategy("fedavg", **options)
    run(resumed, changing_losses(losses), 5)
    assert len(history_of(resumed)) == 5
    assert resumed.recorder.state.detector_memory["strikes"].tolist() == [2] * 5


def test_training_metrics_are_weighted_as_nodes_state_it_and_the_model_at_most_a_hundredfold():
    nodes = small_nodes()
    strategy = small_strategy("fedavg", weighted_by_key="num-examples")

    def tamper(node, reply):
        if node == HOSTILE:
            reply.content["metrics"]["num-examples"] = 12 * 10**9
        return [reply]

    nodes.tamper = tamper
    means = run(strategy, nodes, 1).train_metrics_clientapp[1]
    measured = {record.client: record.quantities for record in history_of(strategy).clients}
    assert means["training-loss"] == pytest.approx(measured[CLIENT]["training_loss"], rel=1e-8)
    assert measured[CLIENT]["weight"] == pytest.approx(100 / 104)


def test_one_false_loss_undoes_no_round(lines):
    """One upload is the longest, so that a round would be repeated without it if the loss seemed to jump."""
    nodes = changing_losses([[0.5, 0.5], [0.5, 0.5], [0.5, 1e9], [0.5, 0.5], [0.5, 0.5]])
    nodes.tamper = lambda node, reply: (
        changed(reply, "arrays", "update", lambda values: 4 * values)
        if node == HOSTILE and reply.metadata.group_id == "2" and "arrays" in reply.content
        else [reply]
    )
    strategy = small_strategy("fedavg", fraction_evaluate=1.0, weighted_by_key="num-examples")
    run(strategy, nodes, 2)
    assert [record.dropped for record in history_of(strategy)] == [{}, {}]


def test_a_reply_that_is_too_large_is_not_decoded(lines):
    nodes, strategy = small_nodes(), small_strategy("fedavg")
    nodes.tamper = lambda node, reply: (
        changed(reply, "arrays", "update", lambda values: np.zeros(1_000_000)) if node == HOSTILE else [reply]
    )
    run(strategy, nodes, 1)
    assert history_of(strategy)[0].dropped == {CLIENT: "arrays has 8,000,128 bytes instead of at most 120"}


@pytest.mark.parametrize("fraction", [0.2, 0.4])
def test_one_evaluator_cannot_stop_a_run(fraction):
    strategy = small_strategy("fedavg", fraction_evaluate=fraction)
    run(strategy, evaluating_nodes({"loss": math.nan, "accuracy": math.nan}), 8)
    assert len(history_of(strategy)) == 8


def test_one_node_with_another_app_cannot_stop_a_run():
    nodes, strategy = small_nodes(), small_strategy("fedavg", fraction_train=0.2, min_train_nodes=1)

    def tamper(node, reply):
        del reply.content["fedtaco"]
        return [reply]

    nodes.tamper = lambda node, reply: tamper(node, reply) if node == HOSTILE else [reply]
    run(strategy, nodes, 10)
    assert sum(bool(record.dropped) for record in history_of(strategy)) < 10


def test_a_reply_of_many_small_arrays_is_not_decoded():
    nodes, strategy = small_nodes(), small_strategy("fedavg")

    def many(reply):
        answer = copy_reply(reply)
        answer.content["arrays"] = ArrayRecord({str(place): Array(np.zeros(1)) for place in range(100)})
        return [answer]

    nodes.tamper = lambda node, reply: many(reply) if node == HOSTILE else [reply]
    run(strategy, nodes, 1)
    assert history_of(strategy)[0].dropped == {CLIENT: "arrays has 100 arrays instead of at most 64"}


def test_clipping_is_refused_if_nodes_remember_what_they_sent():
    small_strategy("fedavg", detector=Guard(long_uploads="clip"))
    with pytest.raises(InvalidInput, match="the nodes of scaffold remember what they sent, not what is left of it"):
        small_strategy("scaffold", detector=Guard(long_uploads="clip"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, [0.5], None])
def test_an_impossible_training_loss_is_not_recorded(value, lines):
    nodes, strategy = small_nodes(), small_strategy("fedavg")

    def tamper(node, reply):
        if node == HOSTILE:
            metrics = dict(reply.content["metrics"].items())
            own = {} if value is None else {"training-loss": value}
            reply.content["metrics"] = MetricRecord(
                {**{name: one for name, one in metrics.items() if name != "training-loss"}, **own}
            )
        return [reply]

    nodes.tamper = tamper
    run(strategy, nodes, ROUNDS)
    honest = small_strategy("fedavg")
    run(honest, small_nodes(), ROUNDS)
    for record, twin in zip(history_of(strategy).clients, history_of(honest).clients, strict=True):
        expected = None if record.client == CLIENT else twin.quantities["training_loss"]
        assert record.quantities["training_loss"] == expected
        assert record.quantities["weight"] == twin.quantities["weight"]
    for record in history_of(strategy):
        known = [
            one.quantities["training_loss"]
            for one in history_of(strategy).clients
            if one.round == record.round and one.client != CLIENT
        ]
        assert record.training_loss == pytest.approx(sum(known) / 4)
    named = [line for line in lines if f"node {HOSTILE}" in line and "training-loss is" in line]
    assert len(named) == (0 if value is None else ROUNDS)
