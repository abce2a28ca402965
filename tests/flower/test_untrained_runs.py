"""A run that used no reply in any round fails with its cause; one useful round, also before a resume, is enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from flwr.app import MetricRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from nodes import filled, history_of, run, small_model, small_nodes, small_strategy

from fedtaco import EarlyStopping, RunStopped
from fedtaco.flower import train
from fedtaco.records import Decision, RunFolder
from fedtaco.testing.small_federation import skewed_clients
from fedtaco.trust import Detector, Verdict

ROUNDS = 3
UNTRAINED = r"used no reply in 3 rounds; the most common reason: the upload is not finite\.$"


def spoiled_nodes(rounds=range(1, ROUNDS + 1)):
    """Return nodes whose uploads are not finite in some rounds."""
    nodes, names = small_nodes(), {str(number) for number in rounds}
    nodes.tamper = lambda node, reply: filled(math.nan)(reply) if reply.metadata.group_id in names else [reply]
    return nodes


def private_app():
    """Return a client app with Flower's modifier for local differential privacy."""
    app = ClientApp(mods=[LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=10.0, delta=1e-5)])

    @app.train()
    def handle(message, context):
        return train(small_model(), skewed_clients()[context.node_config["partition-id"]], message, context)

    return app


@pytest.mark.parametrize("method", ["fedavg", "taco", "mime"])
def test_a_mod_that_refuses_every_message_stops_the_run_in_its_first_round(method, tmp_path):
    nodes = small_nodes()
    nodes.apps = dict.fromkeys(nodes.nodes, private_app())
    with pytest.raises(RunStopped, match=r"a mod of the client app refused the message: LocalDpMod expects"):
        run(small_strategy(method, checkpoint=tmp_path / "run"), nodes, ROUNDS)
    assert len(nodes.sent) == 5
    assert "LocalDpMod expects" in RunFolder(tmp_path / "run").summary()["stopped"]


def test_a_mod_on_one_node_costs_its_replies_only():
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.apps[103] = private_app()
    run(strategy, nodes, ROUNDS)
    assert [list(record.dropped) for record in history_of(strategy)] == [[2]] * ROUNDS


def test_a_run_without_any_used_reply_fails_with_the_most_common_reason(tmp_path):
    strategy, nodes = small_strategy("taco", checkpoint=tmp_path / "run"), spoiled_nodes()
    spoil = nodes.tamper
    nodes.tamper = lambda node, reply: [] if node == 101 else spoil(node, reply)
    with pytest.raises(RunStopped, match=UNTRAINED):
        run(strategy, nodes, ROUNDS)
    assert len(history_of(strategy)) == ROUNDS
    assert RunFolder(tmp_path / "run").summary()["stopped"].startswith("The model has not been trained: taco used no")


def test_nodes_that_never_answer_are_named_as_the_cause():
    nodes = small_nodes()
    nodes.tamper = lambda node, reply: []
    with pytest.raises(RunStopped, match=r"reason: no reply came within 0\.2 seconds\.$"):
        run(small_strategy("taco"), nodes, 1)


@dataclass(frozen=True)
class DropsEverything(Detector):
    name = "drops-everything"
    summary = "drops every upload"

    def judge(self, memory, given):
        clients = given.uploads.clients.tolist()
        decisions = [Decision(client, "dropped", "any", 1.0, 0.0, "no upload is good enough") for client in clients]
        return Verdict(memory, torch.ones(len(clients), dtype=torch.bool), decisions, [{} for _ in clients])


def test_a_detector_that_drops_everything_is_named_as_the_cause():
    with pytest.raises(RunStopped, match=r"used no reply in 2 rounds; .* reason: no upload is good enough\.$"):
        run(small_strategy("fedavg", detector=DropsEverything()), small_nodes(), 2)


@pytest.mark.parametrize("spoiled", [[1, 2], [2, 3], [1, 3]])
def test_one_useful_round_is_enough(spoiled):
    strategy = small_strategy("taco")
    run(strategy, spoiled_nodes(spoiled), ROUNDS)
    assert [len(record.dropped) == 5 for record in history_of(strategy)] == [n in spoiled for n in (1, 2, 3)]


def test_stopping_early_does_not_hide_the_failure():
    strategy = small_strategy("taco", callbacks=[EarlyStopping(patience=1)])
    with pytest.raises(RunStopped, match=r"used no reply in 2 rounds; the most common reason: the upload"):
        run(strategy, spoiled_nodes(), ROUNDS, evaluate_fn=lambda number, arrays: MetricRecord({"accuracy": 0.1}))


def interrupted(out, spoiled):
    nodes = spoiled_nodes(spoiled)
    spoil = nodes.tamper

    def cut(node, reply):
        if reply.metadata.group_id == "3":
            raise KeyboardInterrupt
        return spoil(node, reply)

    nodes.tamper = cut
    with pytest.raises(KeyboardInterrupt):
        run(small_strategy("taco", checkpoint=out), nodes, ROUNDS)


def test_a_resumed_run_counts_the_rounds_before(tmp_path):
    interrupted(tmp_path / "useful", spoiled=[2])
    run(small_strategy("taco", checkpoint=tmp_path / "useful"), spoiled_nodes([3]), ROUNDS)
    interrupted(tmp_path / "useless", spoiled=[1, 2])
    with pytest.raises(RunStopped, match=UNTRAINED):
        run(small_strategy("taco", checkpoint=tmp_path / "useless"), spoiled_nodes([3]), ROUNDS)


def test_a_failed_run_fails_again_when_it_is_started_again(tmp_path):
    for expected in (5 * ROUNDS, 0):
        nodes = spoiled_nodes()
        with pytest.raises(RunStopped, match=UNTRAINED):
            run(small_strategy("taco", checkpoint=tmp_path / "run"), nodes, ROUNDS)
        assert len(nodes.sent) == expected
