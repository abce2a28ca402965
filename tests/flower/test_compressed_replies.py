"""Compressed uploads on Flower: the simulator's results, the bytes that are sent, and hostile replies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from nodes import Nodes, arrays, client_app, copy_reply, history_of, run, small_nodes, small_strategy
from sketches import OWN_CODEC
from test_equals_simulator import ROUNDS, assert_same_model, simulate, without_seconds
from torch import nn

from fedtaco import InvalidInput, RunStopped
from fedtaco.codecs import Q8
from fedtaco.flower import FedStrategy
from fedtaco.methods import METHODS
from fedtaco.testing.small_federation import CLIENTS

HOSTILE, CLIENT = 103, 2
HEADER = 128
"""Bytes that numpy's format adds to an array."""


@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_q8_ends_with_the_same_bits_as_the_simulator(method):
    strategy = small_strategy(method, compress="q8")
    result = run(strategy, small_nodes(), ROUNDS)
    simulation = simulate(method, compress="q8")
    assert_same_model(result, simulation)
    same = without_seconds(history_of(strategy).client_table()), without_seconds(simulation.history.client_table())
    assert same[0] == same[1]
    for name in ("bytes_up", "bytes_down"):
        assert history_of(strategy).column(name) == simulation.history.column(name), name


@pytest.mark.parametrize("compress", ["q4", "topk:0.2", "randk:0.6", "sign", OWN_CODEC])
@pytest.mark.parametrize("method", ["taco", "scaffold", "stem"])
def test_every_codec_ends_with_the_same_bits_as_the_simulator(method, compress):
    result = run(small_strategy(method, compress=compress, fraction_train=0.6), small_nodes(), ROUNDS)
    simulation = simulate(method, compress=compress, participation=0.6)
    assert_same_model(result, simulation)


def test_a_lost_residual_is_zero_and_reported(lines):
    """A node that forgets its memory continues with a residual of zero."""
    nodes = small_nodes()
    strategy = small_strategy("fedavg", compress="topk:0.2")

    def forget(node, reply):
        if node == HOSTILE and reply.metadata.group_id == "2":
            nodes.contexts[node].state.clear()
        return [reply]

    nodes.tamper = forget
    result = run(strategy, nodes, ROUNDS)
    assert any(f"node {HOSTILE} (client {CLIENT}) has lost its memory of round 2" in line for line in lines)
    plain = run(small_strategy("fedavg", compress="topk:0.2"), small_nodes(), ROUNDS)
    assert not torch.equal(result.arrays.to_torch_state_dict()["weight"], plain.arrays.to_torch_state_dict()["weight"])


def test_the_residual_of_a_lost_reply_is_rolled_back():
    """A client whose reply is lost in round 2 continues as if it had not taken part, as the simulator does."""
    nodes = small_nodes()
    nodes.tamper = lambda node, reply: [] if node == HOSTILE and reply.metadata.group_id == "2" else [reply]
    strategy = small_strategy("fedavg", compress="topk:0.2")
    run(strategy, nodes, ROUNDS)
    assert [sorted(record.dropped) for record in history_of(strategy)] == [[], [CLIENT], [], [], []]
    valid = [
        message.content["config"]["memory-round"] for message in nodes.sent if message.metadata.dst_node_id == HOSTILE
    ]
    assert valid == [0, 1, 1, 3, 4]
    stored = nodes.contexts[HOSTILE].state
    assert sorted(name.removeprefix("fedtaco.memory.") for name in stored) == ["4", "5"]
    residuals = {name: stored[name]["residual/update"].numpy() for name in stored}
    assert all(np.abs(residual).max() > 0 for residual in residuals.values())


def test_the_compressed_form_is_what_is_sent():
    model = nn.Linear(2000, 5)
    samples = [(torch.randn(8, 2000), torch.randint(0, 5, (8,))) for _ in range(3)]
    nodes, replies = Nodes([client_app(model, own) for own in samples]), []
    nodes.tamper = lambda node, reply: [replies.append(reply) or reply]
    strategy = FedStrategy("scaffold", model, local_steps=2, batch_size=4, fraction_evaluate=0, compress="q4")
    strategy.start(nodes, arrays(model), num_rounds=2, timeout=1)
    length = 10_005
    payload, vector = 2 * ((length + 1) // 2 + 4 * 20), 4 * length
    for reply in replies:
        names = [f"{name}/{part}" for name in ("update", "variate_change") for part in ("levels", "scales")]
        assert sorted(reply.content["arrays"]) == names
        assert sum(len(array.data) for array in reply.content["arrays"].values()) == payload + 4 * HEADER
    for record in history_of(strategy):
        assert (record.bytes_up, record.bytes_down) == (3 * payload, 3 * 2 * vector)
        assert (record.wire_bytes_up, record.wire_bytes_down) == (3 * (payload + 4 * HEADER), 3 * 2 * (vector + HEADER))


def hostile(compress, method="fedavg", **parts):
    """Run with a node that changes parts of its payload, and return the reason for which its replies are dropped."""

    def tamper(node, reply):
        if node != HOSTILE:
            return [reply]
        answer = copy_reply(reply)
        own = dict(answer.content["arrays"].items())
        for name, change in parts.items():
            key = f"update/{name}"
            own[key] = Array(np.ascontiguousarray(change(own[key].numpy().copy())))
        answer.content["arrays"] = ArrayRecord(own)
        return [answer]

    nodes, strategy = small_nodes(), small_strategy(method, compress=compress)
    nodes.tamper = tamper
    result = run(strategy, nodes, ROUNDS)
    assert torch.isfinite(result.arrays.to_torch_state_dict()["weight"]).all()
    dropped = [record.dropped for record in history_of(strategy)]
    assert all(set(one) == {CLIENT} for one in dropped)
    (reason,) = {one[CLIENT] for one in dropped}
    return reason


def put(value):
    def change(values):
        values[0] = value
        return values

    return change


def test_payloads_that_nobody_would_send_are_dropped():
    cannot = "it cannot be read: "
    assert hostile("q8", levels=put(-128)) == f"{cannot}a level is above 127"
    assert hostile("q8", scales=put(-1.0)) == f"{cannot}a scale is negative"
    assert hostile("q8", scales=put(np.nan)) == "the upload is not finite"
    assert hostile("sign", scale=put(np.inf)) == "the upload is not finite"
    assert hostile("sign", signs=lambda signs: signs | 1) == f"{cannot}the unused bits are not empty"
    assert hostile("topk:0.2", values=put(np.nan)) == "the upload is not finite"
    assert hostile("topk:0.2", places=lambda places: places | 255) == f"{cannot}the unused bits are not empty"
    assert hostile("topk:0.2", places=put(255)).startswith(f"{cannot}it marks ")


def test_payloads_of_another_form_are_dropped_before_they_are_decoded():
    many = "has the shape (4096,) and type torch.int8 instead of (15,) and torch.int8"
    assert hostile("q8", levels=lambda levels: np.zeros(4096, np.int8)) == f"update/levels {many}"
    assert "arrays has" in hostile("q8", levels=lambda levels: np.zeros(100_000, np.int8))
    assert "type torch.float64" in hostile("q8", levels=lambda levels: levels.astype(np.float64))
    assert "shape (2,)" in hostile("q8", scales=lambda scales: np.ones(2))


def test_a_reply_without_compression_is_dropped():
    def plain(node, reply):
        if node == HOSTILE:
            reply.content["arrays"] = ArrayRecord({"update": Array(np.zeros(15))})
        return [reply]

    nodes, strategy = small_nodes(), small_strategy("fedavg", compress="topk:0.5")
    nodes.tamper = plain
    run(strategy, nodes, 1)
    (record,) = history_of(strategy)
    assert "it contains update instead of update/places, update/values" in record.dropped[CLIENT]
    assert record.bytes_up == (CLIENTS - 1) * (8 * 8 + 2)


@dataclass(frozen=True)
class Planted(Q8):
    name = "planted"


def test_nodes_import_no_codec_that_they_do_not_allow():
    """The client app of the tests allows one codec; the strategy itself may name any."""
    strategy = small_strategy("fedavg", compress="test_compressed_replies:Planted")
    nodes = small_nodes()
    with pytest.raises(RunStopped, match="is not one of fedtaco's and is not allowed"):
        run(strategy, nodes, 1)


def test_what_a_method_cannot_use_is_refused_at_once():
    with pytest.raises(InvalidInput, match=r"compress is 'sign', which needs error feedback, .* mime .*; use q8 or q4"):
        small_strategy("mime", compress="sign")
    with pytest.raises(InvalidInput, match=r"topk.ratio is 2.0; it must be a number above 0 and at most 1"):
        small_strategy("taco", compress="topk:2")
