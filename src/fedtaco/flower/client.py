"""The client side: :func:`train`, which a client app calls in its ``@app.train()``."""

from collections.abc import Sequence
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from torch import nn
from torch.nn.functional import cross_entropy

from fedtaco.client import ClientConfig, ClientRunner, dry_run
from fedtaco.codecs import parse_codec
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.compression import Compression, without_residuals
from fedtaco.data import as_samples
from fedtaco.device import choose_device, deterministic_torch
from fedtaco.errors import InvalidInput
from fedtaco.files import reason_of
from fedtaco.flower.arrays import check_dtypes
from fedtaco.flower.memory_store import open_store
from fedtaco.flower.node_model import require_frozen
from fedtaco.flower.wire import NodeInstructions, ReplyHeader, invalid_message, read_instructions, reply_records
from fedtaco.methods import METHODS, Constants, Method, NamedTensors
from fedtaco.models import FlatModel, Loss
from fedtaco.parameters import domains, split_names
from fedtaco.sample_checks import check_samples


def train(
    model: nn.Module,
    data: Any,
    msg: Message,
    context: Context,
    *,
    loss: Loss = cross_entropy,
    device: str = "cpu",
    allow_methods: Sequence[str] = (),
    allow_codecs: Sequence[str] = (),
) -> Message:
    """Run this node's part of a round of :class:`FedStrategy`, and return the reply.

    Parameters
    ----------
    model
        The module to train. Its trainable parameters are replaced by those that the server sends. Frozen
        parameters are not sent: they must equal those of the server's model, which is checked. Personal layers, which
        the server's setting ``personal`` names, are not sent either: this node stores them from round to round.
    data
        This node's samples, in any form that :func:`fedtaco.train` accepts. Of a ``DataLoader``, the dataset and
        the ``collate_fn`` are used: the strategy sets the number of steps and the batch size.
    msg, context
        As Flower passes them to ``@app.train()``. The method's client memory and personal layers are stored in the
        context, or in the folder ``memory-dir`` if the node is configured with one.
    loss
        Returns the mean loss of a batch from predictions and targets.
    device
        The device to train on: ``cpu``, ``cuda``, ``mps`` or ``auto``.
    allow_methods
        Methods of your own that the server may ask for, as ``["package.module:Class"]``; this node imports them, and
        their ``cost`` limits how many vectors and scalars it receives. Without it, only the methods of fedtaco are
        possible, and nothing is imported.
    allow_codecs
        Codecs of your own that the server may ask for, likewise.

    Returns
    -------
    Message
        The reply that ``@app.train()`` must return.

    Raises
    ------
    InvalidInput
        If the message is not from FedStrategy or not valid, its method or codec is not allowed, the model differs from
        the server's, or the samples do not fit the model.

    Examples
    --------
    In a client app::

        @app.train()
        def train(msg, context):
            return fedtaco.flower.train(Net(), load_data(context), msg, context)
    """
    config = msg.content.get("config")
    node = NodeInstructions.from_config(config if isinstance(config, ConfigRecord) else {})
    method, codec = _create_method(node, allow_methods), parse_codec(node.settings["compress"], allow_codecs)
    spec = node.run_spec(method, codec)
    constants = spec.constants(node.settings["clients"], node.settings["local_steps"])
    flat = FlatModel(model, choose_device(device), split_names(node.settings["personal"] or ""))
    check_dtypes(flat.module)
    instructions = read_instructions(node, msg.content, flat, method.cost)
    require_frozen(flat, node.frozen)
    samples = as_samples(data)
    check_samples(flat, {"this node": samples}, loss)
    client_config = ClientConfig(constants, node.settings["batch_size"], loss, node.settings["seed"])
    runner = ClientRunner(flat, {node.client: samples}, client_config)
    store, compression = open_store(context, node), Compression(spec, constants)
    fresh = runner.new_memory(method, instructions.broadcast.start)
    _require_content(method, instructions, constants, fresh)
    fresh = {**fresh, **compression.initial_residuals(instructions, fresh)}
    stored = store.get(node.memory_round, like=fresh) if fresh and node.memory_round else None
    job = ClientJob(0, node.client, node.local_steps(len(samples)), stored or fresh)
    with deterministic_torch():
        runner.warm_up()
        result = compression.compress_result(
            instructions, job, runner.run(method, instructions, without_residuals(job))
        )
    if node.phase == "train" and result.memory:
        store.put(node.round, result.memory, keep=node.memory_round)
    lost = bool(fresh and node.memory_round and stored is None)
    header = ReplyHeader(node.phase, node.round, node.client, job.steps, lost_memory=lost)
    return Message(reply_records(header, result, len(samples)), reply_to=msg)


def _create_method(node: NodeInstructions, allow_methods: Sequence[str]) -> Method:
    """Return the method that the server asks for; raise InvalidInput if it is not allowed or has other parameters."""
    if node.method not in METHODS and node.method not in tuple(allow_methods):
        raise InvalidInput(
            f"The server asks for the method '{node.method}', which is not one of fedtaco's. If it is your own, allow "
            "it in the client app: fedtaco.flower.train(..., allow_methods=['package.module:Class'])."
        )
    method_class = METHODS.find(node.method)
    known = {f"{method_class.name}.{name}" for name in domains(method_class)}
    if foreign := sorted(set(node.parameters) - known):
        raise invalid_message(f"{method_class.name} has no parameter '{foreign[0]}'")
    return METHODS.instance(method_class, node.parameters)


def _require_content(method: Method, instructions: Instructions, constants: Constants, memory: NamedTensors) -> None:
    """Raise InvalidInput if the message does not contain all vectors and scalars that the method uses."""
    try:
        dry_run(method, instructions, constants, memory)
    except Exception as error:
        raise invalid_message(f"it does not contain what {method.name} needs: {reason_of(error)}") from error
