"""The model of a node that evaluates: :func:`receive_model`, for the ``@app.evaluate()`` of client apps."""

import copy

from flwr.app import ConfigRecord, Context, Message
from torch import nn

from fedtaco.errors import InvalidInput
from fedtaco.flower.arrays import read_tensors
from fedtaco.flower.memory_store import open_store, shapes
from fedtaco.flower.wire import EvaluationInstructions, invalid_message
from fedtaco.methods import NamedTensors
from fedtaco.models import FlatModel, load_tensors
from fedtaco.parameters import split_names


def receive_model(model: nn.Module, msg: Message, context: Context) -> nn.Module:
    """Return this node's model for an evaluation: the server's weights, and the node's own personal layers.

    Parameters
    ----------
    model
        A module like the one in :func:`train`; it is copied. Frozen parameters are not sent, so it must have those of
        the server's model. Its personal layers are used as long as the node has not trained any.
    msg, context
        As Flower passes them to ``@app.evaluate()``.

    Returns
    -------
    nn.Module
        The model, in evaluation mode.

    Raises
    ------
    InvalidInput
        If the message is not from FedStrategy or not valid, the model differs from the server's, or the node has lost
        its personal layers.

    Examples
    --------
    In a client app::

        @app.evaluate()
        def evaluate(msg, context):
            model = fedtaco.flower.receive_model(Net(), msg, context)
            metrics = MetricRecord({"accuracy": accuracy(model, load_data(context)), "num-examples": 200})
            return Message(RecordDict({"metrics": metrics}), reply_to=msg)
    """
    config = msg.content.get("config")
    node = EvaluationInstructions.from_config(config if isinstance(config, ConfigRecord) else {})
    flat = FlatModel(model, personal=split_names(node.personal or ""))
    require_frozen(flat, node.frozen)
    module = copy.deepcopy(model).eval()
    own = {name: tensor for name, tensor in module.state_dict().items() if name not in flat.unsent_names}
    try:
        sent = read_tensors(msg.content, "arrays", sum(tensor.nbytes for tensor in own.values()), len(own))
    except ValueError as error:
        raise invalid_message(error) from error
    if shapes(sent) != shapes(own):
        raise InvalidInput(
            "The model of this node differs from the server's; pass the same model to FedStrategy and receive_model."
        )
    module.load_state_dict({**module.state_dict(), **sent})
    load_tensors(module, flat.personal_state(_personal_memory(flat, node, context)))
    return module


def require_frozen(model: FlatModel, expected: str) -> None:
    """Raise InvalidInput if a model's frozen parameters do not have the expected hash, that of the server's model."""
    if model.frozen_fingerprint() != expected:
        raise InvalidInput(
            "The frozen parameters of this node's model differ from those of the server's; load the same weights into "
            "both models (initial_arrays on the server)."
        )


def _personal_memory(model: FlatModel, node: EvaluationInstructions, context: Context) -> NamedTensors:
    """Return the personal layers that this node has stored; empty if it has none yet."""
    if not model.personal_names or not node.memory_round:
        return {}
    stored = open_store(context, node).get(node.memory_round, like=model.initial_personal)
    if stored is None:
        raise InvalidInput(
            f"This node has lost its personal layers of round {node.memory_round}; give it a folder: --node-config "
            "'memory-dir=\"…\"'."
        )
    return stored
