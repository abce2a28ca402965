"""Messages of a hostile server: a node refuses them with a sentence, imports nothing and reads no other file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from nodes import run, small_model, small_nodes, small_strategy
from safetensors.torch import save_file
from torch import nn

from fedtaco import InvalidInput, Method
from fedtaco.flower import FedStrategy, train
from fedtaco.testing.small_federation import skewed_clients

NUMBERS = 15
"""Number of parameters of the small model, which are float64."""


@dataclass(frozen=True)
class Mine(Method):
    """A user's method, which is found as ``test_hostile_messages:Mine``."""

    name, summary = "mine", "is FedAvg"


@cache
def sent_by_the_server(method):
    """Return the content of a valid message to a node in the last of three rounds."""
    nodes = small_nodes()
    run(small_strategy(method), nodes, 3)
    return nodes.sent[-1].content


def message(config=(), records=(), method="taco"):
    """Return the message of a method's last round, with some entries of its config and some records changed."""
    content = {**sent_by_the_server(method), **dict(records)}
    content["config"] = ConfigRecord({**content["config"], **dict(config)})
    present = {name: record for name, record in content.items() if record is not None}
    return Message(RecordDict(present), 101, "train", group_id="3")


def answer(received, model=None, node_config=None, **options):
    """Return a node's reply to a message."""
    context = Context(1, 101, node_config or {}, RecordDict(), {})
    return train(model or small_model(), skewed_clients()[0], received, context, **options)


def refusal(received, **options):
    """Return the sentence with which a node refuses a message."""
    with pytest.raises(InvalidInput) as error:
        answer(received, **options)
    assert str(error.value).isprintable()
    return str(error.value)


def test_an_unchanged_message_is_answered():
    assert answer(message()).content["arrays"]["update"].shape == (NUMBERS,)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("phase", "evaluate", "phase is 'evaluate'; it must be one of survey, train"),
        ("phase", 1, "phase is 1"),
        ("phase", "survey", "it does not contain what taco needs: Taco has surveys = True"),
        ("server-round", "1", "server-round is '1'; it must be a whole number at least 1"),
        ("server-round", True, "server-round is True"),
        ("server-round", 0, "server-round is 0"),
        ("server-round", 4, "server-round is 4; it must be below 4"),
        ("server-round", 1.0, "server-round is 1.0"),
        ("run", "../../etc", "run is '../../etc'; it must be text of the form"),
        ("run", "", "run is ''"),
        ("run", "a" * 65, "run is 'aaaa"),
        ("run", 12, "run is 12"),
        ("client", -1, "client is -1"),
        ("client", 5, "client is 5; it must be below 5"),
        ("client", "0", "client is '0'"),
        ("memory-round", "../../secret", "memory-round is '../../secret'; it must be a whole number at least 0"),
        ("memory-round", -1, "memory-round is -1"),
        ("memory-round", 3, "memory-round is 3; it must be below 3"),
        ("method", "os; x", "method is 'os; x'"),
        ("method", b"taco", "method is b'taco'"),
        ("method", "tako", "asks for the method 'tako', which is not one of fedtaco's"),
        ("method", "fedavg", "fedavg has no parameter 'taco.delta_scale'"),
        ("frozen", "\x1b[2J", "frozen is"),
        ("batch-size", 10**9, "batch_size is 1000000000; it must be a whole number at least 1 and at most 1,000,000"),
        ("batch-size", "4", "batch_size is '4'"),
        ("batch-size", True, "batch_size is True"),
        ("local-steps", 2**31, "local_steps is 2147483648"),
        ("clients", 10**12, "clients is 1000000000000"),
        ("rounds", 0, "rounds is 0"),
        ("seed", -1, "seed is -1"),
        ("local-lr", float("nan"), "local_lr is nan"),
        ("local-lr", "0.1", "local_lr is '0.1'"),
        ("server-lr", -1.0, "server_lr is -1.0"),
        ("optimizer", "lion", "optimizer is 'lion'; it must be one of sgd, adam, adamw"),
        ("optimizer", "adamw", "Without weight_decay, adamw is adam"),
        ("momentum", 1.0, "momentum is 1.0; it must be a number at least 0 and below 1"),
        ("momentum", True, "momentum is True"),
        ("nesterov", 1, "nesterov is 1; it must be true or false"),
        ("nesterov", True, "nesterov has no effect without momentum"),
        ("weight-decay", float("inf"), "weight_decay is inf"),
        ("clip-norm", 0.0, "clip_norm is 0.0; it must be a number above 0"),
        ("lr-schedule", "step:0,2", "lr_schedule is 'step:0,2'; it must be constant, cosine,"),
        ("lr-schedule", 3, "lr_schedule is 3; it must be text"),
        ("local-epochs", 0, "local_epochs is 0"),
        ("local-epochs", 1.5, "local_epochs is 1.5"),
        ("work-share", 0.0, "work-share is 0.0; it must be a number above 0 and at most 1"),
        ("work-share", 1.5, "work-share is 1.5"),
        ("work-share", float("nan"), "work-share is nan"),
        ("work-share", "0.5", "work-share is '0.5'"),
        ("parameter.taco.gamma", 7, "taco.gamma is 7; it must be a number at least 0 and at most 1"),
        ("parameter.taco.gamma", [0.1], "taco.gamma is [0.1]"),
        ("parameter.taco.nothing", 1.0, "taco has no parameter 'taco.nothing'"),
        ("parameter.", 1.0, "taco has no parameter ''"),
        ("scalar.alpha", float("inf"), "scalar.alpha is inf; it must be a finite number"),
        ("scalar.alpha", 1, "scalar.alpha is 1"),
        ("scalar.alpha", "0.1", "scalar.alpha is '0.1'"),
        ("scalar.more", 1.0, "it has 2 scalars instead of at most 1"),
    ],
)
def test_an_invalid_entry_is_refused(key, value, expected):
    assert expected in refusal(message({key: value}))


def test_steps_and_batch_size_are_limited_together():
    demanding = message({"local-steps": 1_000_000, "batch-size": 1_000_000})
    assert "local_steps times batch_size is 1,000,000,000,000" in refusal(demanding)


def test_several_gradients_per_step_are_refused_with_adam():
    received = message({"optimizer": "adam"}, method="stem")
    assert "optimizer is 'adam', which allows one gradient per step, but stem computes 2;" in refusal(received)


# What a server can make a node import or read


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module in the node's working directory whose import leaves a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "planted.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    return tmp_path


@pytest.mark.parametrize("allowed", [[], ["planted:Y"], ["planted"], "planted:X"])
def test_nothing_is_imported_unless_the_client_app_allows_it(planted, allowed):
    assert "asks for the method 'planted:X'" in refusal(message({"method": "planted:X"}), allow_methods=allowed)
    assert not (planted / "imported").exists()
    assert "planted" not in sys.modules


def test_a_method_that_the_client_app_allows_is_run():
    nodes = small_nodes()
    app = ClientApp()

    @app.train()
    def handle(received, context):
        data = skewed_clients()[int(context.node_config["partition-id"])]
        return train(small_model(), data, received, context, allow_methods=["test_hostile_messages:Mine"])

    nodes.apps = dict.fromkeys(nodes.nodes, app)
    own, plain = (run(small_strategy(method), one, 2) for method, one in ((Mine(), nodes), ("fedavg", small_nodes())))
    assert torch.equal(*(result.arrays.to_torch_state_dict()["weight"] for result in (own, plain)))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"not safetensors", "1.safetensors is damaged"),
        ({"variate": torch.zeros(3)}, "is of another method or model; start a new run"),
        ({"secret": torch.zeros(NUMBERS, dtype=torch.float64)}, "is of another method or model; start a new run"),
    ],
    ids=["damaged", "other shape", "other name"],
)
def test_a_stored_memory_that_does_not_fit_is_reported(tmp_path, content, expected):
    received = message({"memory-round": 1}, method="scaffold")
    config = received.content["config"]
    folder = tmp_path / f"{config['run']}-{config['client']}"
    folder.mkdir()
    if isinstance(content, bytes):
        (folder / "1.safetensors").write_bytes(content)
    else:
        save_file(content, folder / "1.safetensors")
    assert expected in refusal(received, node_config={"memory-dir": str(tmp_path)})


# Arrays


def vector(size=NUMBERS, dtype=np.float64):
    return Array(np.zeros(size, dtype))


def encoded(data, shape=(NUMBERS,), dtype="float64", stype="numpy.ndarray"):
    """Return an array whose data need not be what it declares."""
    return Array(dtype=dtype, shape=shape, stype=stype, data=data)


def npy(shape, dtype="<f8", numbers=NUMBERS):
    """Return an array in numpy's format whose header may claim any shape and type."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8 * numbers)


@pytest.mark.parametrize(
    ("record", "arrays", "expected"),
    [
        ("arrays", None, "15 numbers (torch.float64) in its trainable parameters, the server's has 0"),
        ("arrays", {}, "the server's has 0"),
        ("arrays", {"start": vector(9)}, "the server's has 9 (torch.float64)"),
        ("arrays", {"start": vector(dtype=np.float32)}, "the server's has 15 (torch.float32)"),
        ("arrays", {"start": vector((3, 5))}, "arrays does not consist of the vector start"),
        ("arrays", {"start": vector(), "more": vector()}, "arrays does not consist of the vector start"),
        ("arrays", {"start": encoded(bytes(10**6))}, "arrays has 1,000,000 bytes instead of at most 120"),
        ("arrays", {"start": encoded(npy("(1000000000000,)"))}, "an array of (1000000000000,) float64 is declared as"),
        ("arrays", {"start": encoded(npy("(15,)", numbers=14))}, "an array of (15,) float64 has 112 bytes"),
        ("arrays", {"start": encoded(npy("(15,)", "|O"))}, "is not valid"),
        ("arrays", {"start": encoded(b"")}, "is not valid"),
        ("arrays", {"start": encoded(b"garbage")}, "is not valid"),
        ("arrays", {"start": encoded(npy("(15,)"), stype="pickle")}, "serialised as 'pickle'"),
        ("buffers", {"buffers": vector(4)}, "0 numbers (torch.float64) in its buffers, the server's has 4"),
        ("vectors", None, "it does not contain what taco needs: it lacks direction"),
        ("vectors", {"direction": vector(7)}, "the vector direction is not like the model's parameters"),
        ("vectors", {"direction": vector(dtype=np.int64)}, "the vector direction is not like the model's parameters"),
        ("vectors", {"direction": vector(), "more": vector(5000)}, "vectors has 40,376 bytes instead of at most 120"),
    ],
)
def test_invalid_arrays_are_refused(record, arrays, expected):
    changed = message(records={record: None if arrays is None else ArrayRecord(arrays)})
    assert expected in refusal(changed)


# Types of numbers that Flower cannot send


def test_a_bfloat16_model_is_refused_on_the_server_and_on_a_node():
    expected = "numbers of the type torch.bfloat16, which Flower cannot send; convert it with model.float()"
    model = nn.Linear(4, 3, dtype=torch.bfloat16)
    assert expected in refusal(message(), model=model)
    with pytest.raises(InvalidInput, match=r"torch\.bfloat16, which Flower cannot send"):
        FedStrategy("taco", model, local_steps=1)
