"""Hostile replies of Flower nodes: none raises an error, and the model stays finite."""

from __future__ import annotations

import random
from typing import Any

import nodes
import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedtaco.errors import RunStopped
from fedtaco.flower.log import log
from fedtaco.methods import METHODS

HOSTILE = 103
VALUES: list[Any] = [0, -1, 1e300, float("nan"), float("inf"), -0.0, 2**62, "text", True, [1.0, 2.0], b"\0", "\x1b[2J"]
SHAPES = [(15,), (0,), (), (3, 5), (14,), (16,), (10**9,), (2**40, 2**40)]
DTYPES = ["float64", "float32", "int64", "bool", ">f8", "object", "U1", "M8[s]"]


def trial(number: int) -> str:
    """Run one round in which one of five nodes replies with something random."""
    log.disabled = True
    np.seterr(over="ignore", invalid="ignore")
    rng = random.Random(number)
    method = list(METHODS)[number % len(METHODS)]
    federation = nodes.small_nodes()
    strategy = nodes.small_strategy(method, detector=rng.choice(["off", "norm", "guard", "paper"]))
    federation.tamper = lambda node, reply: _spoil(reply, rng) if node == HOSTILE else [reply]
    try:
        nodes.run(strategy, federation, 1, timeout=0.01)
    except RunStopped as stop:
        return f"FAILED: {method}: {stop}"
    finite = torch.isfinite(strategy.recorder.state.server.weights).all()
    if not finite:
        return f"FAILED: {method}: the model is not finite"
    return "reply dropped" if strategy.recorder.history[0].dropped else "reply used"


def _spoil(reply: Message, rng: random.Random) -> list[Message]:
    """Return a reply that is changed in one to three random ways, twice the same reply, or none."""
    answer = nodes.copy_reply(reply)
    for _ in range(rng.randint(1, 3)):
        rng.choice([_change_array, _change_header, _change_metrics, _drop_record, _bad_bytes, _scale])(answer, rng)
    kind = rng.random()
    if kind < 0.05:
        return []
    if kind < 0.1:
        return [answer, answer]
    if kind < 0.15:
        return [Message(Error(rng.randint(0, 9), rng.choice(["", "\x1b[31m", "x" * 10_000])), reply_to=reply)]
    return [answer]


def _change_array(answer: Message, rng: random.Random) -> None:
    content = answer.content.get("arrays")
    names = list(content) if isinstance(content, ArrayRecord) else ["update"]
    value = rng.choice([0.0, 1.0, -1e6, 1e200, np.nan, np.inf])
    array = np.full(rng.choice([(15,), (3, 5), (14,), ()]), value, dtype=rng.choice(["float64", "float32"]))
    answer.content["arrays"] = ArrayRecord({rng.choice([*names, "unknown", ""]): Array(array)})


def _bad_bytes(answer: Message, rng: random.Random) -> None:
    data = Array(np.zeros(15)).data[: rng.randint(0, 248)] + rng.randbytes(rng.randint(0, 200))
    stype = rng.choice(["numpy.ndarray", "numpy.ndarray", "torch.tensor", ""])
    array = Array(dtype=rng.choice(DTYPES), shape=rng.choice(SHAPES), stype=stype, data=data)
    answer.content["arrays"] = ArrayRecord({"update": array})


def _scale(answer: Message, rng: random.Random) -> None:
    content = answer.content.get("arrays")
    if isinstance(content, ArrayRecord) and content:
        name, factor = rng.choice(list(content)), 10.0 ** rng.randint(-12, 12)
        try:
            scaled = factor * content[name].numpy()
        except Exception:  # an array that an earlier change has damaged
            return
        answer.content["arrays"] = ArrayRecord({**dict(content.items()), name: Array(np.asarray(scaled))})


def _change_header(answer: Message, rng: random.Random) -> None:
    keys = ["phase", "server-round", "client", "steps", "lost-memory", "other"]
    answer.content["fedtaco"] = ConfigRecord({rng.choice(keys): rng.choice(VALUES) for _ in range(rng.randint(0, 4))})


def _change_metrics(answer: Message, rng: random.Random) -> None:
    numbers = [value for value in VALUES if isinstance(value, int | float | list) and not isinstance(value, bool)]
    names = ["num-examples", "seconds", "loss", "\x1b[2J", ""]
    answer.content["metrics"] = MetricRecord({rng.choice(names): rng.choice(numbers) for _ in range(rng.randint(0, 4))})


def _drop_record(answer: Message, rng: random.Random) -> None:
    content: RecordDict = answer.content
    if content:
        del content[rng.choice(list(content))]
