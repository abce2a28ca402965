"""Detectors on Flower: an expelled node gets no more messages, and the server no longer waits for it."""

from __future__ import annotations

import pytest
from nodes import copy_reply, filled, history_of, run, small_nodes, small_strategy

from fedtaco import RunStopped
from fedtaco.trust import PaperDetector

HOSTILE, CLIENT, ROUNDS = 103, 2, 3


def test_an_expelled_node_gets_no_more_messages_and_its_replies_are_dropped(lines):
    nodes = small_nodes()
    alphas = probe_alphas()
    worst = max(range(5), key=lambda client: alphas[client])
    strategy = small_strategy("taco", detector=PaperDetector(kappa=alphas[worst], max_strikes=1))
    late_replies = []

    def tamper(node, reply):
        if node == 101 + worst:
            late_replies.append(copy_reply(reply))
            return [reply]
        return [*late_replies[-1:], reply]

    nodes.tamper = tamper
    run(strategy, nodes, ROUNDS)
    assert sum(message.metadata.dst_node_id == 101 + worst for message in nodes.sent) == 1
    (expulsion,) = [line for line in lines if line.startswith("Round 1: ") and "is expelled" in line]
    assert f"node {101 + worst} (client {worst}) is expelled: strikes for α at or above" in expulsion
    records = [record for record in history_of(strategy).clients if record.client == worst]
    assert [record.expelled for record in records] == [True]
    assert any(f"a reply of node {101 + worst}, which was not asked, is dropped" in line for line in lines)


def strategy_expelling_one(nodes, **options):
    """Return a strategy that expels one client in the first round, and the node of that client."""
    alphas = probe_alphas()
    worst = max(range(5), key=lambda client: alphas[client])
    detector = PaperDetector(kappa=alphas[worst], max_strikes=1)
    return small_strategy("taco", detector=detector, **options), nodes.nodes[worst]


def disconnect_after_first_round(nodes, gone):
    def tamper(node, reply):
        nodes.connected = [one for one in nodes.nodes if one != gone]
        return [reply]

    nodes.tamper = tamper


def test_an_expelled_node_may_disconnect():
    nodes = small_nodes()
    strategy, expelled = strategy_expelling_one(nodes, min_available_nodes=5)
    disconnect_after_first_round(nodes, expelled)
    run(strategy, nodes, 2)
    assert [record.cohort for record in history_of(strategy)] == [5, 4]


def test_an_expelled_node_does_not_count_as_available():
    nodes = small_nodes()
    strategy, expelled = strategy_expelling_one(nodes, min_available_nodes=5)
    disconnect_after_first_round(nodes, next(node for node in nodes.nodes if node != expelled))
    with pytest.raises(RunStopped, match="Only 4 nodes were connected"):
        run(strategy, nodes, 2)
    assert [record.cohort for record in history_of(strategy)] == [5]


def test_the_guard_drops_the_uploads_of_a_freeloader_and_then_expels_it(lines):
    nodes, strategy = small_nodes(), small_strategy("taco", detector="guard")
    nodes.tamper = lambda node, reply: filled(0.0)(reply) if node == HOSTILE else [reply]
    run(strategy, nodes, 5)
    history = history_of(strategy)
    assert [list(record.dropped.values()) for record in history] == [["the upload is zero"]] * 3 + [[], []]
    assert [[one.action for one in record.decisions] for record in history] == [
        ["dropped"],
        ["dropped"],
        ["expelled"],
        [],
        [],
    ]
    assert sum(message.metadata.dst_node_id == HOSTILE for message in nodes.sent) == 3
    named = [line for line in lines if f"node {HOSTILE} (client {CLIENT}) is" in line]
    assert named[0] == f"Round 1: node {HOSTILE} (client {CLIENT}) is dropped: the upload is zero."
    assert named[2].endswith("is expelled: the upload is zero; it gets no more messages.")


def probe_alphas():
    """Return each client's α in the first round of TACO."""
    strategy = small_strategy("taco")
    run(strategy, small_nodes(), 1)
    return [record.quantities["alpha"] for record in history_of(strategy).clients]
