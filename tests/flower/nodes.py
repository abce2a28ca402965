"""Flower nodes in one process: real messages, apps and contexts, with a grid that calls the apps directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from sketches import OWN_CODEC
from torch import nn

from fedtaco.flower import FedStrategy, train
from fedtaco.testing.small_federation import CLASSES, FEATURES, LOCAL_LR, STEPS, skewed_clients

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 0  # as in the process of a server app


class Nodes(Grid):
    """A grid of nodes with ids from 101 on; ``tamper`` may replace a node's reply by any list of replies."""

    def __init__(self, apps: list[ClientApp], configs: list[dict[str, Any]] | None = None) -> None:
        self.nodes = [101 + place for place in range(len(apps))]
        self.apps = dict(zip(self.nodes, apps, strict=True))
        own = configs or [{"partition-id": place, "num-partitions": len(apps)} for place in range(len(apps))]
        self.contexts = {
            node: Context(1, node, config, RecordDict(), {}) for node, config in zip(self.nodes, own, strict=True)
        }
        self.connected = list(self.nodes)
        self.sent: list[Message] = []
        self.replies: dict[str, list[Message]] = {}
        self.tamper: Callable[[int, Message], list[Message]] = lambda node, reply: [reply]

    def get_node_ids(self):
        return self.connected

    def push_messages(self, messages):
        identities = []
        for message in messages:
            identity = f"message-{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = identity
            self.sent.append(message)
            node = message.metadata.dst_node_id
            self.replies[identity] = self.tamper(node, self.reply(node, message))
            identities.append(identity)
        return identities

    def recipient(self, identity: str) -> int:
        """Return the node that a message was sent to."""
        return next(m.metadata.dst_node_id for m in self.sent if m.metadata.message_id == identity)

    def reply(self, node: int, message: Message) -> Message:
        """Return the reply of a node's app; an error message if the app raises."""
        try:
            return self.apps[node](message, self.contexts[node])
        except Exception as error:
            return Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=message)

    def pull_messages(self, message_ids):
        return [reply for identity in message_ids for reply in self.replies.pop(identity, [])]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def set_run(self, run): ...

    @property
    def run(self):
        raise AssertionError("the strategy must not use the grid's run")


def client_app(model: nn.Module, data: Any) -> ClientApp:
    """Return a client app as users write it."""
    app = ClientApp()

    @app.train()
    def handle(message: Message, context: Context) -> Message:
        return train(model, data, message, context, allow_codecs=[OWN_CODEC])

    return app


def small_model() -> nn.Module:
    """Return the linear model in float64 that the method contract also uses."""
    module = nn.Linear(FEATURES, CLASSES, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel(), dtype=torch.float64).view_as(parameter))
    return module


def small_nodes(**options: Any) -> Nodes:
    """Return five nodes, each with the samples of one skewed client."""
    return Nodes([client_app(small_model(), samples) for samples in skewed_clients()], **options)


def small_strategy(method, **options: Any) -> FedStrategy:
    given = {"local_steps": STEPS, "batch_size": 4, "local_lr": LOCAL_LR, "fraction_evaluate": 0.0, **options}
    return FedStrategy(method, small_model(), **given)


def arrays(model: nn.Module) -> ArrayRecord:
    return ArrayRecord(model.state_dict())


def run(strategy: FedStrategy, nodes: Nodes, rounds: int = 5, timeout: float = 0.2, **options: Any):
    return strategy.start(nodes, arrays(strategy.model), num_rounds=rounds, timeout=timeout, **options)


def history_of(strategy: FedStrategy):
    """Return the history of a strategy's run."""
    return strategy.recorder.history


# Tampered replies


def update(array):
    """Return a function that replaces the upload of a reply by this array."""

    def spoil(reply):
        reply.content["arrays"] = ArrayRecord({"update": array})
        return [reply]

    return spoil


def filled(value):
    return update(Array(np.full(15, value)))


def copy_reply(reply):
    content = RecordDict(dict(reply.content))
    copy = Message(content, reply_to=reply)
    copy.metadata.__dict__.update(
        _src_node_id=reply.metadata.src_node_id, _reply_to_message_id=reply.metadata.reply_to_message_id
    )
    return copy
