"""The client's half: one call inside the user's own ``@app.train()``."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Context, Message
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from fedtaco.data import as_samples
from fedtaco.device import choose_device, quiet_torch
from fedtaco.errors import InvalidInput
from fedtaco.experiment.build import build_method
from fedtaco.flower.memory import keep_of
from fedtaco.flower.wire import Task, assignment_of, reply_content
from fedtaco.local import Assignment, Job, Plan, Worker
from fedtaco.models import FlatModel, Loss


def train(
    model: nn.Module, data: Any, msg: Message, context: Context, *, loss: Loss = cross_entropy, device: str = "cpu"
) -> Message:
    """Do what :class:`FedStrategy` asks of this node, and give the reply to return.

    Parameters
    ----------
    model
        The module that is trained; its weights are the server's, so that its own do not matter. Frozen parameters
        are not sent: they must be those of the server's model, and this is checked.
    data
        This node's samples: a pair ``(x, y)`` of tensors, a ``Dataset``, or a ``DataLoader``, whose dataset is
        taken: steps and batches are those that the strategy asks for.
    msg, context
        As Flower gives them to ``@app.train()``. What the method remembers is kept in the context, or, where
        the node is configured with ``memory-dir``, in that folder.
    loss
        The mean loss of a batch, from predictions and targets.
    device
        Where the model computes: ``cpu``, ``cuda``, ``mps`` or ``auto``.

    Examples
    --------
    In a client app::

        @app.train()
        def train(msg, context):
            return fedtaco.flower.train(Net(), load_data(context), msg, context)
    """
    config = msg.content.get("config")
    task = Task.of(config if isinstance(config, ConfigRecord) else {})
    assignment = assignment_of(task, msg.content)
    flat = FlatModel(model, choose_device(device))
    _check_fit(flat, assignment, task)
    samples = as_samples(data.dataset if isinstance(data, DataLoader) else data)
    if len(samples) == 0:
        raise InvalidInput("This node has no samples; give it some, or do not let it take part.")
    method = build_method(task.method, task.parameters)
    worker = Worker(flat, [samples] * task.setting.clients, Plan(task.setting, task.batch_size, loss, task.seed))
    keep = keep_of(context, task)
    fresh = method.client_memory(assignment.broadcast.start, task.setting)
    remembered = keep.get(task.memory_round) if fresh and task.memory_round else None
    job = Job(0, task.client, task.setting.local_steps, remembered or fresh)
    with quiet_torch():
        worker.warm_up()
        reply = worker.run(method, assignment, job)
    if task.phase == "train" and reply.memory:
        keep.put(task.round, reply.memory, beside=task.memory_round)
    lost = bool(fresh and task.memory_round and remembered is None)
    return Message(reply_content(task, reply, len(samples), lost_memory=lost), reply_to=msg)


def _check_fit(model: FlatModel, assignment: Assignment, task: Task) -> None:
    for what, own, sent in (
        ("trainable parameters", model.vector, assignment.broadcast.start),
        ("buffers", model.buffers, assignment.buffers),
    ):
        if own.shape != sent.shape or own.dtype != sent.dtype:
            raise InvalidInput(
                f"The model of this node has {own.numel():,} numbers ({own.dtype}) in its {what}, the server's has "
                f"{sent.numel():,} ({sent.dtype}); give FedStrategy and train the same model."
            )
    if model.frozen_fingerprint() != task.frozen:
        raise InvalidInput(
            "The frozen parameters of this node's model are not those of the server's; load the same weights into the "
            "models of both (initial_arrays on the server)."
        )
