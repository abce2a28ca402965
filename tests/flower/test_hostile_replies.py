"""A bad reply is dropped and logged with its node; it never stops the run."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import HealthCheck, given, settings, strategies as st
from nodes import client_app, copy_reply, filled, history_of, run, small_model, small_nodes, small_strategy, update
from small_training import Broken

import fedtaco
from fedtaco import RunStopped
from fedtaco.flower.wire import HEADER
from fedtaco.testing.small_federation import LOCAL_LR, STEPS, skewed_clients

HOSTILE, CLIENT, ROUNDS = 103, 2, 3


def model_of(strategy):
    return strategy.recorder.current_model(strategy.node_clients.model).state_dict()


def simulate(broken_client=None):
    """Return the model of the simulator; ``broken_client`` sends uploads that are not finite."""
    samples = [(own.x, own.y) for own in skewed_clients()]
    if broken_client is not None:
        samples[broken_client] = Broken(*samples[broken_client])
    result = fedtaco.train(
        small_model(), samples, rounds=ROUNDS, local_steps=STEPS, batch_size=4, local_lr=LOCAL_LR, engine="serial"
    )
    return result.model.state_dict()


def assert_equal(first, second):
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def raw(data, shape=(15,), dtype="float64", stype="numpy.ndarray"):
    return update(Array(dtype=dtype, shape=shape, stype=stype, data=data))


class TouchOnUnpickle:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (Path.touch, (Path(self.path),))


def as_npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def as_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("update.npy", as_npy(np.zeros(15)))
    return file.getvalue()


def without(name):
    def spoil(reply):
        del reply.content[name]
        return [reply]

    return spoil


def header_with(**changes):
    def spoil(reply):
        reply.content[HEADER] = ConfigRecord({**reply.content[HEADER], **changes})
        return [reply]

    return spoil


def error(code, reason):
    return lambda reply: [_error_reply(reply, code, reason)]


def _error_reply(reply, code, reason):
    """Return an error as Flower reports it: it names the message, but not the node."""
    wrong = Message(Error(code, reason), reply_to=reply)
    wrong.metadata.__dict__.update(_src_node_id=1, _reply_to_message_id=reply.metadata.reply_to_message_id)
    return wrong


def with_npy_header(count):
    """Return a few numbers behind a numpy header that announces ``count`` of them."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (count,)})
    return file.getvalue() + bytes(120)


BAD_REPLIES = {
    "wrong shape": (update(Array(np.zeros(14))), "has the shape (14,)"),
    "two dimensions": (update(Array(np.zeros((1, 15)))), "has the shape (1, 15)"),
    "single precision": (update(Array(np.zeros(15, dtype=np.float32))), "type torch.float32"),
    "integers": (update(Array(np.zeros(15, dtype=np.int64))), "type torch.int64"),
    "text": (update(Array(np.array(["a"] * 15))), "an array of (15,) <U1 is declared as (15,) <U1"),
    "empty": (update(Array(np.zeros(0))), "has the shape (0,)"),
    "NaN": (filled(np.nan), "the upload is not finite"),
    "infinity": (filled(np.inf), "the upload is not finite"),
    "norm overflows": (filled(1e308), "the upload is not finite"),
    "huge norm": (filled(1e30), "the norm of update is 3.87e+30"),
    "wrong name": (
        lambda reply: [
            Message(RecordDict({**reply.content, "arrays": ArrayRecord({"upd": Array(np.zeros(15))})}), reply_to=reply)
        ],
        "contains upd instead of update",
    ),
    "additional name": (
        lambda reply: [
            Message(
                RecordDict({**reply.content, "buffers": ArrayRecord({"buffers": Array(np.zeros(1))})}), reply_to=reply
            )
        ],
        "contains buffers, update instead of update",
    ),
    "no arrays": (without("arrays"), "contains nothing instead of update"),
    "no header": (without(HEADER), "was not made by fedtaco.flower.train"),
    "header of the wrong type": (
        lambda reply: [Message(RecordDict({**reply.content, HEADER: MetricRecord({"phase": 1})}), reply_to=reply)],
        "was not made by fedtaco.flower.train",
    ),
    "wrong round": (header_with(**{"server-round": 77}), "answers server-round 77 instead of"),
    "wrong phase": (header_with(phase="survey"), "answers phase 'survey' instead of 'train'"),
    **{
        f"{steps!r} steps": (header_with(steps=steps), f"states {steps!r} steps instead of a whole number at least 3")
        for steps in (0, 2, 4, -3, True, 3.0, "3", 10**18)
    },
    "truncated": (raw(as_npy(np.zeros(15))[:-8]), "an array of (15,) float64 has 112 bytes"),
    "not an array": (raw(b"\x00" * 40), "cannot be read"),
    "huge numpy header": (raw(with_npy_header(10**13)), "an array of (10000000000000,) float64 is declared as (15,)"),
    "zip archive": (raw(as_zip()), "cannot be read"),
    "unknown serialisation": (
        raw(as_npy(np.zeros(15)), stype="torch"),
        "an array is serialised as 'torch'",
    ),
    "big-endian": (update(Array(np.zeros(15, dtype=">f8"))), "cannot be read"),
    "client app raised": (error(2, "<class 'OSError'>:<'no disk'>"), "raised an error: <class 'OSError'>:<'no disk'>"),
    "node is gone": (error(5, None), "the node is gone"),
    "long error with control characters": (
        error(0, "\x1b[31m\nfine\r" + "x" * 100_000),
        "Flower reports error 0: [31m fine x",
    ),
    "no reply": (lambda reply: [], "no reply came within 0.2 seconds"),
}


@pytest.mark.parametrize("kind", BAD_REPLIES)
def test_a_bad_reply_is_dropped_and_logged(kind, lines):
    spoil, words = BAD_REPLIES[kind]
    nodes, strategy = small_nodes(), small_strategy("taco")

    def tamper(node, reply):
        if node != HOSTILE:
            return [reply]
        spoiled = spoil(reply)
        for one in spoiled:
            one.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
            if not one.has_error():
                one.metadata.__dict__["_src_node_id"] = node
        return spoiled

    nodes.tamper = tamper
    run(strategy, nodes, ROUNDS)
    assert_equal(model_of(strategy), simulate(broken_client=CLIENT))
    for record in history_of(strategy):
        assert list(record.dropped) == [CLIENT]
        assert words in record.dropped[CLIENT]
        assert len(record.dropped[CLIENT]) < 400
    named = [line for line in lines if f"node {HOSTILE} (client {CLIENT}) is dropped" in line]
    assert len(named) == ROUNDS
    assert all(words in line and line.isprintable() for line in named)


@pytest.mark.parametrize("steps", [0, 7, 10**18, True, 2.0])
def test_with_epochs_a_node_may_state_at_most_local_steps(steps):
    """Otherwise, a node could make the server's steps as small as it likes."""
    nodes = small_nodes()
    strategy = small_strategy("taco", local_steps=6, local_epochs=1, server_lr=0.2)
    nodes.tamper = lambda node, reply: header_with(steps=steps)(reply) if node == HOSTILE else [reply]
    run(strategy, nodes, ROUNDS)
    reasons = [record.dropped for record in history_of(strategy)]
    assert (
        reasons == [{CLIENT: f"it states {steps!r} steps instead of a whole number at least 1 and at most 6"}] * ROUNDS
    )


@pytest.mark.parametrize("pack", [lambda thing: as_npy(np.array([thing] * 15), allow_pickle=True), pickle.dumps])
def test_nothing_is_unpickled(pack, tmp_path):
    trace = tmp_path / "trace"
    data = pack(TouchOnUnpickle(trace))
    pickle.loads(data[data.index(b"\x80") :])
    assert trace.exists()
    trace.unlink()
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.tamper = lambda node, reply: raw(data, dtype="object")(reply) if node == HOSTILE else [reply]
    run(strategy, nodes, ROUNDS)
    assert not trace.exists()
    assert [list(record.dropped) for record in history_of(strategy)] == [[CLIENT]] * ROUNDS


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), [3, 4]])
def test_a_reply_with_an_invalid_weight_is_dropped(weight):
    nodes, strategy = small_nodes(), small_strategy("taco", weighted_by_key="num-examples")

    def tamper(node, reply):
        if node == HOSTILE:
            reply.content["metrics"]["num-examples"] = weight
        return [reply]

    nodes.tamper = tamper
    run(strategy, nodes, ROUNDS)
    assert_equal(model_of(strategy), simulate(broken_client=CLIENT))
    assert "num-examples" in history_of(strategy)[0].dropped[CLIENT]


def test_the_second_reply_of_a_node_is_dropped(lines):
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.tamper = lambda node, reply: [reply, *filled(7.0)(copy_reply(reply))] if node == HOSTILE else [reply]
    run(strategy, nodes, ROUNDS)
    assert_equal(model_of(strategy), simulate())
    assert sum("second reply of this round" in line and f"node {HOSTILE} " in line for line in lines) == ROUNDS


def test_a_reply_of_an_unknown_node_is_dropped(lines):
    nodes, strategy = small_nodes(), small_strategy("taco")

    def tamper(node, reply):
        stranger = filled(7.0)(copy_reply(reply))[0]
        stranger.metadata.__dict__.update(_src_node_id=666, _reply_to_message_id="nobody's")
        return [stranger, reply]

    nodes.tamper = tamper
    run(strategy, nodes, ROUNDS)
    assert_equal(model_of(strategy), simulate())
    assert any("a reply of node 666, which was not asked, is dropped" in line for line in lines)


def test_a_tiny_upload_does_not_make_an_honest_one_an_outlier():
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.connected = nodes.nodes[:2]
    nodes.tamper = lambda node, reply: filled(1e-8)(reply) if node == 101 else [reply]
    run(strategy, nodes, 2)
    assert [record.dropped for record in history_of(strategy)] == [{}, {}]


@pytest.mark.parametrize("kind", ["no reply", "NaN", "wrong round"])
def test_a_round_without_usable_replies_is_skipped(kind, lines):
    nodes, strategy = small_nodes(), small_strategy("scaffold")
    spoil = BAD_REPLIES[kind][0]
    nodes.tamper = lambda node, reply: spoil(reply) if reply.metadata.group_id == "1" else [reply]
    run(strategy, nodes, 4)
    history = history_of(strategy)
    assert [len(record.dropped) for record in history] == [5, 0, 0, 0]
    assert [record.quantities["weight"] for record in history.clients if record.round == 1] == [0.0] * 5
    assert "Round 1: no reply could be used; the model stays as it was." in lines
    assert not torch.equal(model_of(strategy)["weight"], small_model().weight)


def test_a_round_whose_survey_nobody_answers_is_skipped(lines):
    nodes, strategy = small_nodes(), small_strategy("mime")

    def tamper(node, reply):
        answers_survey = reply.content[HEADER]["phase"] == "survey"
        return [] if answers_survey and reply.metadata.group_id == "2" else [reply]

    nodes.tamper = tamper
    run(strategy, nodes, 3)
    assert [len(record.dropped) for record in history_of(strategy)] == [0, 5, 0]
    assert len(nodes.sent) == 10 + 5 + 10
    assert sum("no reply came within" in line for line in lines) == 5


def test_a_reply_that_flower_fails_to_deliver_is_dropped(lines):
    nodes, strategy = small_nodes(), small_strategy("taco")
    deliver = nodes.pull_messages

    def failing(identities):
        if any(nodes.recipient(identity) == HOSTILE for identity in identities):
            raise ValueError("Unexpected set of `children`.")
        return deliver(identities)

    nodes.pull_messages = failing
    run(strategy, nodes, ROUNDS, timeout=20)
    assert_equal(model_of(strategy), simulate(broken_client=CLIENT))
    assert (
        sum(f"node {HOSTILE} " in line and "its reply cannot be read: Unexpected set" in line for line in lines)
        == ROUNDS
    )


def plain_app():
    """Return a client app without fedtaco: FedAvg as in Flower's tutorials."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        arrays = ArrayRecord(small_model().state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 12})}), reply_to=message)

    return app


def loading_app():
    """Return a client app without fedtaco that loads the received arrays into its model."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        small_model().load_state_dict(message.content["arrays"].to_torch_state_dict())
        raise AssertionError("the arrays are the model's")

    return app


@pytest.mark.parametrize("app", [plain_app, loading_app])
def test_client_apps_without_the_client_half_stop_the_run_in_its_first_round(app):
    nodes = small_nodes()
    nodes.apps = {node: app() for node in nodes.nodes}
    with pytest.raises(RunStopped, match=r"fedtaco\.flower\.train\(model, data, msg, context\)"):
        run(small_strategy("taco"), nodes, ROUNDS)
    assert len(nodes.sent) == 5


def test_one_node_without_the_client_half_is_dropped():
    nodes, strategy = small_nodes(), small_strategy("taco")
    nodes.apps[HOSTILE] = plain_app()
    run(strategy, nodes, ROUNDS)
    assert_equal(model_of(strategy), simulate(broken_client=CLIENT))


def test_the_client_half_rejects_messages_of_another_strategy():
    app = client_app(small_model(), skewed_clients()[0])
    message = Message(RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord({"lr": 0.1})}), 101, "train")
    with pytest.raises(fedtaco.InvalidInput, match=r"not from fedtaco\.flower\.FedStrategy"):
        app(message, small_nodes().contexts[101])


numbers = st.floats(width=64) | st.floats(-3, 3)
shapes = st.sampled_from([(15,), (15,), (15,), (14,), (3, 5), (0,), ()])
kinds = st.sampled_from(["<f8", "<f8", "<f4", "<i8", "|b1", "<c16", "<U3", ">f8", "<f2"])


@st.composite
def arrays(draw):
    shape, kind = draw(shapes), np.dtype(draw(kinds))
    count = int(np.prod(shape))
    values = draw(st.lists(numbers, min_size=count, max_size=count))
    with np.errstate(all="ignore"):
        array = np.array(values).astype(kind, casting="unsafe").reshape(shape)
    data = as_npy(array)
    cut = draw(st.sampled_from([None, None, None, 60, len(data) - 1]))
    return Array(dtype=kind.str, shape=shape, stype="numpy.ndarray", data=data[:cut])


names = st.sampled_from(["update", "update", "buffers", "variate_change", "x"])
records = st.one_of(
    st.dictionaries(names, arrays(), max_size=3).map(ArrayRecord),
    st.dictionaries(
        st.sampled_from(["num-examples", "seconds", "loss"]), st.floats() | st.integers(0, 9), max_size=3
    ).map(MetricRecord),
    st.dictionaries(
        st.sampled_from(["phase", "server-round", "steps", "lost-memory", "client"]),
        st.sampled_from(["train", "survey", ""]) | st.integers(0, 3) | st.booleans() | st.binary(max_size=3),
        max_size=4,
    ).map(ConfigRecord),
)
contents = st.dictionaries(st.sampled_from(["arrays", "buffers", "metrics", HEADER, "config"]), records, max_size=5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(contents, min_size=2, max_size=2), st.booleans(), st.booleans())
def test_the_model_stays_finite_whatever_a_node_replies(replies, honest_header, weighted):
    nodes = small_nodes()
    strategy = small_strategy("taco", weighted_by_key="num-examples" if weighted else None)

    def tamper(node, reply):
        if node == HOSTILE:
            header = {HEADER: reply.content[HEADER]} if honest_header else {}
            reply.content = RecordDict({**replies[int(reply.metadata.group_id) - 1], **header})
        return [reply]

    nodes.tamper = tamper
    run(strategy, nodes, 2)
    assert all(torch.isfinite(tensor).all() for tensor in model_of(strategy).values())
    for record in history_of(strategy):
        assert set(record.dropped) <= {CLIENT}
        assert record.slowest_client_seconds is None or np.isfinite(record.slowest_client_seconds)
