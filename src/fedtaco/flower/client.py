"""The client's half: one call inside the user's own ``@app.train()``."""

from typing import Any

from flwr.app import ConfigRecord, Context, Message
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from fedtaco.client import ClientConfig, ClientRunner
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.data import as_samples
from fedtaco.device import choose_device, deterministic_torch
from fedtaco.errors import InvalidInput
from fedtaco.flower.memory_store import open_store
from fedtaco.flower.wire import NodeInstructions, ReplyHeader, read_instructions, reply_records
from fedtaco.methods import METHODS
from fedtaco.models import FlatModel, Loss


def train(
    model: nn.Module, data: Any, msg: Message, context: Context, *, loss: Loss = cross_entropy, device: str = "cpu"
) -> Message:
    """Do what :class:`FedStrategy` asks of this node, and return the reply.

    Parameters
    ----------
    model
        The module that is trained. The server sends its weights, so that its own do not matter. Frozen parameters
        are not sent: they must equal those of the server's model, which is checked.
    data
        This node's samples: a pair ``(x, y)`` of tensors, a ``Dataset``, or a ``DataLoader``, of which the dataset
        is used: steps and batches are those that the strategy asks for.
    msg, context
        As Flower gives them to ``@app.train()``. What the method remembers is kept in the context, or, if
        the node is configured with ``memory-dir``, in that folder.
    loss
        The mean loss of a batch, from predictions and targets.
    device
        Where the model computes: ``cpu``, ``cuda``, ``mps`` or ``auto``.

    Returns
    -------
    Message
        The reply that ``@app.train()`` must return.

    Raises
    ------
    InvalidInput
        If the message is not from FedStrategy, or the model is not the server's.

    Examples
    --------
    In a client app::

        @app.train()
        def train(msg, context):
            return fedtaco.flower.train(Net(), load_data(context), msg, context)
    """
    config = msg.content.get("config")
    node = NodeInstructions.from_config(config if isinstance(config, ConfigRecord) else {})
    instructions = read_instructions(node, msg.content)
    flat = FlatModel(model, choose_device(device))
    _check_fit(flat, instructions, node)
    samples = as_samples(data.dataset if isinstance(data, DataLoader) else data)
    if len(samples) == 0:
        raise InvalidInput("This node has no samples; give it some, or do not let it take part.")
    method, constants = METHODS.create(node.method, node.parameter), node.constants
    client_config = ClientConfig(constants, node.setting["batch_size"], loss, node.setting["seed"])
    runner = ClientRunner(flat, [samples] * constants.clients, client_config)
    store = open_store(context, node)
    fresh = method.client_memory(instructions.broadcast.start, constants)
    remembered = store.get(node.memory_round) if fresh and node.memory_round else None
    job = ClientJob(0, node.client, constants.local_steps, remembered or fresh)
    with deterministic_torch():
        runner.warm_up()
        result = runner.run(method, instructions, job)
    if node.phase == "train" and result.memory:
        store.put(node.round, result.memory, beside=node.memory_round)
    lost = bool(fresh and node.memory_round and remembered is None)
    header = ReplyHeader(node.phase, node.round, node.client, lost_memory=lost)
    return Message(reply_records(header, result, len(samples)), reply_to=msg)


def _check_fit(model: FlatModel, instructions: Instructions, node: NodeInstructions) -> None:
    for what, own, sent in (
        ("trainable parameters", model.vector, instructions.broadcast.start),
        ("buffers", model.buffers, instructions.buffers),
    ):
        if own.shape != sent.shape or own.dtype != sent.dtype:
            raise InvalidInput(
                f"The model of this node has {own.numel():,} numbers ({own.dtype}) in its {what}, the server's has "
                f"{sent.numel():,} ({sent.dtype}); give FedStrategy and train the same model."
            )
    if model.frozen_fingerprint() != node.frozen:
        raise InvalidInput(
            "The frozen parameters of this node's model are not those of the server's; load the same weights into the "
            "models of both (initial_arrays on the server)."
        )
