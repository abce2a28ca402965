"""The format of messages: records of arrays, numbers and text. Nothing that arrives is ever unpickled.

A node receives ``arrays`` (the starting point), ``vectors`` (what else the method broadcasts, if anything), ``buffers``
(if the model has any) and ``config`` (numbers and names). It returns ``arrays`` (the upload), ``buffers``,
``metrics``, and a header that marks the reply as fedtaco's. The keys of ``config`` and of the header are
the fields of :class:`NodeInstructions` and :class:`ReplyHeader`, in kebab-case. A node that evaluates receives
``arrays`` (the global model by name, without what it has itself) and a ``config`` with the fields of
:class:`EvaluationInstructions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.codecs import Codec
from fedtaco.cohort import ClientResult, Instructions, Phase
from fedtaco.data import steps_for_epochs
from fedtaco.errors import InvalidInput
from fedtaco.files import reason_of
from fedtaco.flower.arrays import read_tensors, to_record
from fedtaco.methods import Broadcast, Cost, Method, NamedTensors
from fedtaco.models import FlatModel
from fedtaco.parameters import Domain, ParameterValue
from fedtaco.printable import quoted
from fedtaco.settings.checks import check_settings
from fedtaco.settings.declarations import MAX_COUNT, RunSettings, declared
from fedtaco.settings.run_spec import RunSpec
from fedtaco.unequal_work import steps_of_share

HEADER = "fedtaco"
"""Name of the record that marks a reply of :func:`fedtaco.flower.train`."""
EXAMPLES, SECONDS, TRAINING_LOSS = "num-examples", "seconds", "training-loss"
"""Names of the metrics in a reply."""
ConfigValue = int | float | str | bool
WIRE_SETTINGS = tuple(name for name, (_, setting) in declared(RunSettings).items() if setting.on_wire)
"""The settings that nodes receive."""
OPTIONAL_SETTINGS = tuple(name for name in WIRE_SETTINGS if NoneType in get_args(declared(RunSettings)[name][0]))
"""Those of them that are not sent if they are ``None``."""


def wire_key(name: str) -> str:
    """Return the key of a field in a message: its name in kebab-case, or Flower's own key for the round.

    >>> wire_key("local_lr"), wire_key("round")
    ('local-lr', 'server-round')
    """
    return "server-round" if name == "round" else name.replace("_", "-")


@dataclass(frozen=True)
class _CommonInstructions:
    """What every message of the server contains: which memory of the node is valid, and which model it must have."""

    run: Annotated[str, re.compile(r"[0-9a-f]{1,64}")]
    """Identifier of the run, which a resume does not change."""
    client: Annotated[int, Domain("number of the client", low=0, high=MAX_COUNT, whole=True)]
    memory_round: Annotated[int, Domain("round of the memory", low=0, high=MAX_COUNT, whole=True)]
    """The last round in which this client's reply was used, after which its memory is valid; 0 if there is none."""
    frozen: Annotated[str, re.compile(r"none|[0-9a-f]{1,64}")]
    """Hash of the server's frozen parameters, which are not sent."""

    def _single_entries(self) -> dict[str, ConfigValue]:
        return {wire_key(name): getattr(self, name) for name in _single_fields(type(self))}

    def _check_single_entries(self) -> None:
        """Raise InvalidInput if an entry of a single field is not valid."""
        for name, valid in _single_fields(type(self)).items():
            value = getattr(self, name)
            if isinstance(valid, Domain):
                is_valid, expected = valid.admits(value), valid.describe()
            else:
                is_valid = isinstance(value, str) and valid.fullmatch(value) is not None
                expected = f"text of the form {valid.pattern}"
            if not is_valid:
                raise _invalid_entry(wire_key(name), value, expected)


@dataclass(frozen=True)
class EvaluationInstructions(_CommonInstructions):
    """What a node that evaluates receives in addition to arrays."""

    personal: str | None
    """The setting ``personal``."""

    def to_config(self) -> dict[str, ConfigValue]:
        """Return the entries of a message's ``config``."""
        return self._single_entries() | ({} if self.personal is None else {"personal": self.personal})

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> EvaluationInstructions:
        """Read the entries of a message's ``config``; raise InvalidInput if one is missing or not valid."""
        single = _read_entries(config, _single_fields(cls))
        received = cls(**single, personal=_checked_settings({"personal": config.get("personal")})["personal"])
        received._check_single_entries()
        return received


@dataclass(frozen=True)
class NodeInstructions(_CommonInstructions):
    """What a node that trains receives in addition to arrays."""

    phase: Annotated[Phase, Domain("part of the round", choices=get_args(Phase))]
    round: Annotated[int, Domain("number of the round", low=1, high=MAX_COUNT, whole=True)]
    work_share: Annotated[float, Domain("share of the local steps that the node takes", low=0, open_low=True, high=1)]
    method: Annotated[str, re.compile(r"[\w.:-]{1,200}")]
    settings: Mapping[str, Any]
    """Settings of the run, at least those in :data:`WIRE_SETTINGS`, which are sent."""
    parameters: Mapping[str, ParameterValue]
    """The parameters of the method."""
    scalars: Mapping[str, float]
    """The scalars of the broadcast for this client."""

    def run_spec(self, method: Method, codec: Codec) -> RunSpec:
        """Return the run as this node knows it; raise InvalidInput if its settings are not valid together."""
        try:
            return RunSpec.with_defaults(method, self.settings, codec=codec)
        except InvalidInput as error:
            raise invalid_message(error) from error

    def local_steps(self, samples: int) -> int:
        """Return the number of steps of a node with this many samples: its share of at most ``local_steps``."""
        epochs, full = self.settings["local_epochs"], int(self.settings["local_steps"])
        if epochs is not None:
            full = min(full, steps_for_epochs(epochs, samples, self.settings["batch_size"]))
        return steps_of_share(self.work_share, full)

    def to_config(self) -> dict[str, ConfigValue]:
        """Return the entries of a message's ``config``."""
        settings = {wire_key(name): self.settings[name] for name in WIRE_SETTINGS if self.settings[name] is not None}
        parameters = {f"parameter.{name}": value for name, value in self.parameters.items()}
        scalars = {f"scalar.{name}": value for name, value in self.scalars.items()}
        return {**self._single_entries(), **settings, **parameters, **scalars}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NodeInstructions:
        """Read the entries of a message's ``config``.

        Raises
        ------
        InvalidInput
            If an entry is missing, as in a message of another strategy, or has an invalid type or value.
        """
        single = _read_entries(config, _single_fields(cls))
        optional = {name: config.get(wire_key(name)) for name in OPTIONAL_SETTINGS}
        settings = _read_entries(config, [name for name in WIRE_SETTINGS if name not in optional])
        checked = _checked_settings({**settings, **optional})
        parameters, scalars = (_entries(f"{name}.", config) for name in ("parameter", "scalar"))
        used = {name: checked[name] for name in WIRE_SETTINGS}
        received = cls(**single, settings=used, parameters=parameters, scalars=scalars)
        received._check()
        return received

    def _check(self) -> None:
        """Raise InvalidInput if an entry other than settings and parameters is not valid."""
        self._check_single_entries()
        for name, value in self.scalars.items():
            if not isinstance(value, float) or not math.isfinite(value):
                raise _invalid_entry(f"scalar.{name}", value, "a finite number")
        limits = {"round": self.settings["rounds"] + 1, "client": self.settings["clients"], "memory_round": self.round}
        for name, limit in limits.items():
            if getattr(self, name) >= limit:
                raise _invalid_entry(wire_key(name), getattr(self, name), f"below {limit}")


def invalid_message(reason: object) -> InvalidInput:
    """Return the error for a message of the server that must not be used."""
    return InvalidInput(f"The server's message is not valid: {str(reason).removesuffix('.')}.")


def _invalid_entry(key: str, value: object, expected: str) -> InvalidInput:
    return invalid_message(f"{key} is {quoted(value)}; it must be {expected}")


def _single_fields(cls: type) -> dict[str, Domain | re.Pattern[str]]:
    """Return the valid values of those fields that are a single entry each."""
    hints = get_type_hints(cls, include_extras=True).items()
    return {name: get_args(hint)[1] for name, hint in hints if get_origin(hint) is Annotated}


def _read_entries(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the entries of these fields; raise InvalidInput if one is missing."""
    try:
        return {name: config[wire_key(name)] for name in names}
    except KeyError as error:
        raise InvalidInput(
            f"The message lacks {error}: it is not from fedtaco.flower.FedStrategy. Use FedStrategy in the server "
            "app, and the same version of fedtaco on the server and the nodes."
        ) from error


def _checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return check_settings(RunSettings, given)
    except InvalidInput as error:
        raise invalid_message(error) from error


RESERVED_KEYS = frozenset(
    wire_key(name) for name in (*_single_fields(NodeInstructions), *WIRE_SETTINGS) if name != "round"
)
"""Keys of a message's ``config`` that the user's ``train_config`` and ``evaluate_config`` must not contain."""


@dataclass(frozen=True)
class ReplyHeader:
    """The header of a reply."""

    phase: Phase
    round: int
    client: int
    steps: int
    """Number of steps that the node took."""
    lost_memory: bool
    """Whether the node no longer had the memory that the server asked for."""

    def to_config(self) -> dict[str, ConfigValue]:
        """Return the entries of the header."""
        return {wire_key(name): value for name, value in vars(self).items()}


def _entries(prefix: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries whose keys begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def broadcast_records(instructions: Instructions) -> dict[str, ArrayRecord]:
    """Return the records that are the same for all nodes of a cohort.

    There are always at least two. Flower's mods for differential privacy, which cannot process these messages, then
    refuse a message on arrival, and the server learns why; they lose the reply to a message with a single record.
    """
    sent = instructions.broadcast
    buffers = {"buffers": to_record(_named(instructions.buffers))} if instructions.buffers.numel() else {}
    return {"arrays": to_record({"start": sent.start}), "vectors": to_record(sent.vectors), **buffers}


def read_instructions(node: NodeInstructions, content: RecordDict, model: FlatModel, cost: Cost) -> Instructions:
    """Return the instructions in a message, in the form that :class:`~fedtaco.client.ClientRunner` expects.

    Parameters
    ----------
    node, content
        The message.
    model
        This node's model, which must be the same as the server's.
    cost
        The method's cost, which limits the vectors and scalars that it may receive.

    Raises
    ------
    InvalidInput
        If the models differ, or the message contains other arrays, or more, than the method needs. The sizes are
        checked before anything is decoded.
    """
    size = model.vector.nbytes
    _require_same_size(content, "arrays", "start", model.vector, "trainable parameters")
    _require_same_size(content, "buffers", "buffers", model.buffers, "buffers")
    if len(node.scalars) > cost.scalars_down:
        raise invalid_message(f"it has {len(node.scalars)} scalars instead of at most {cost.scalars_down}")
    try:
        start = read_tensors(content, "arrays", size)["start"]
        buffers = read_tensors(content, "buffers", model.buffers.nbytes).get("buffers", start.new_empty(0))
        vectors = read_tensors(content, "vectors", (cost.down - 1) * size)
        for name, vector in vectors.items():
            if vector.shape != start.shape or vector.dtype != start.dtype:
                raise ValueError(f"the vector {name} is not like the model's parameters")
    except Exception as error:
        raise invalid_message(reason_of(error)) from error
    scalars = {name: start.new_tensor([value]) for name, value in node.scalars.items()}
    return Instructions(node.phase, node.round, Broadcast(start, vectors, scalars), buffers)


def _require_same_size(content: RecordDict, name: str, key: str, own: Tensor, what: str) -> None:
    """Raise InvalidInput if a record contains anything else than one vector of the size and type of ``own``."""
    record = content.get(name)
    arrays = dict(record) if isinstance(record, ArrayRecord) else {}
    sent = arrays.pop(key, None)
    if arrays or (sent is not None and len(sent.shape) != 1):
        raise invalid_message(f"{name} does not consist of the vector {key}")
    own_type = str(own.dtype).removeprefix("torch.")
    numbers, sent_type = (0, own_type) if sent is None else (sent.shape[0], sent.dtype)
    if (numbers, sent_type) != (own.numel(), own_type):
        raise InvalidInput(
            f"The model of this node has {own.numel():,} numbers ({own.dtype}) in its {what}, the server's has "
            f"{numbers:,} (torch.{sent_type}); pass the same model to FedStrategy and fedtaco.flower.train."
        )


def reply_records(header: ReplyHeader, result: ClientResult, samples: int) -> RecordDict:
    """Return the content of a reply."""
    records = {"arrays": to_record(result.upload)}
    if result.buffers.numel():
        records["buffers"] = to_record(_named(result.buffers))
    metrics: dict[str, int | float] = {EXAMPLES: samples, SECONDS: result.seconds or 0.0}
    if result.training_loss is not None:
        metrics[TRAINING_LOSS] = result.training_loss
    return RecordDict({**records, "metrics": MetricRecord({**metrics}), HEADER: ConfigRecord({**header.to_config()})})


def read_header(message: Message) -> Mapping[str, object] | None:
    """Return the header of a reply, unchecked; ``None`` if it has none."""
    header = message.content.get(HEADER)
    return cast(Mapping[str, object], header) if isinstance(header, ConfigRecord) else None


def read_metrics(content: RecordDict) -> Mapping[str, object]:
    """Return the first record of metrics, whatever its name, unchecked; empty if there is none."""
    found = (record for record in content.values() if isinstance(record, MetricRecord))
    return cast(Mapping[str, object], next(found, {}))


def _named(buffers: Tensor) -> NamedTensors:
    return {"buffers": buffers} if buffers.numel() else {}


def refuse_own_keys(name: str, config: ConfigRecord) -> None:
    """Raise InvalidInput if a user's config contains a key that FedStrategy sends itself."""
    reserved = sorted(RESERVED_KEYS & set(config))
    if reserved:
        raise InvalidInput(
            f"{name} sets '{reserved[0]}', a key that FedStrategy itself sends to the nodes; rename it, or "
            "pass the value to FedStrategy."
        )
