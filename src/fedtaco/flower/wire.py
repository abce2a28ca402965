"""What crosses the network: records of plain numbers. Nothing that arrives is ever unpickled.

A node receives ``arrays`` (the starting point), ``vectors`` (what else the method broadcasts), ``buffers``
(if the model has any) and ``config`` (numbers and names). It returns ``arrays`` (the upload), ``buffers``,
``metrics``, and a header that marks the reply as fedtaco's. The keys of ``config`` and of the header are
the fields of :class:`NodeInstructions` and :class:`ReplyHeader`, in kebab-case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.cohort import ClientResult, Instructions, Phase
from fedtaco.errors import InvalidInput
from fedtaco.methods import Broadcast, Constants, NamedTensors
from fedtaco.parameters import ParameterValue
from fedtaco.runs.settings import RunSettings, declared

HEADER = "fedtaco"
"""Name of the record that marks a reply of fedtaco's client."""
EXAMPLES, SECONDS = "num-examples", "seconds"
"""Metrics of a reply."""
ConfigValue = int | float | str | bool
WIRE_SETTINGS = tuple(name for name, (_, setting) in declared(RunSettings).items() if setting.on_wire)
"""The settings that nodes receive."""


def wire_key(name: str) -> str:
    """Return the key of a field in a message; the round's is Flower's own.

    >>> wire_key("local_lr"), wire_key("round")
    ('local-lr', 'server-round')
    """
    return "server-round" if name == "round" else name.replace("_", "-")


@dataclass(frozen=True)
class NodeInstructions:
    """What a node receives besides arrays."""

    phase: Phase
    round: int
    run: str
    """Identifies the run, also after a resume."""
    client: int
    memory_round: int
    """The last round whose reply of this client was used; its memory of then holds. 0 if there is none."""
    method: str
    frozen: str
    """Hash of the server's frozen parameters, which are not sent."""
    setting: Mapping[str, Any]
    """The settings in :data:`WIRE_SETTINGS`."""
    parameter: Mapping[str, ParameterValue]
    """The parameters of the method."""
    scalar: Mapping[str, float]
    """The scalars of the broadcast for this client."""

    @property
    def constants(self) -> Constants:
        """The constants of the run."""
        return Constants(**{field.name: self.setting[field.name] for field in fields(Constants)})

    def to_config(self) -> dict[str, ConfigValue]:
        """Return the entries of a message's ``config``."""
        single = {wire_key(name): getattr(self, name) for name in _SINGLE_FIELDS}
        settings = {wire_key(name): value for name, value in self.setting.items() if value is not None}
        parameters = {f"parameter.{name}": value for name, value in self.parameter.items()}
        return {**single, **settings, **parameters, **{f"scalar.{name}": value for name, value in self.scalar.items()}}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NodeInstructions:
        """Read the entries of a message's ``config``.

        Raises
        ------
        InvalidInput
            If an entry is missing, as in a message of another strategy.
        """
        try:
            single = {name: config[wire_key(name)] for name in _SINGLE_FIELDS}
            optional = {"server_lr": config.get("server-lr")}
            settings = {name: config[wire_key(name)] for name in WIRE_SETTINGS if name not in optional}
        except KeyError as error:
            raise InvalidInput(
                f"The message lacks {error}: it is not from fedtaco.flower.FedStrategy, which fedtaco.flower.train "
                "answers; use FedStrategy in the server app, of the same version of fedtaco."
            ) from error
        parameter, scalar = (_entries(f"{name}.", config) for name in ("parameter", "scalar"))
        return cls(**single, setting={**settings, **optional}, parameter=parameter, scalar=scalar)


_SINGLE_FIELDS = tuple(
    field.name for field in fields(NodeInstructions) if field.name not in ("setting", "parameter", "scalar")
)
OWN_KEYS = frozenset(wire_key(name) for name in (*_SINGLE_FIELDS, *WIRE_SETTINGS) if name != "round")
"""Keys of a message's ``config`` that users' own settings must not use."""


@dataclass(frozen=True)
class ReplyHeader:
    """What a reply says about itself."""

    phase: Phase
    round: int
    client: int
    lost_memory: bool
    """Whether the node no longer had the memory that the server asked for."""

    def to_config(self) -> dict[str, ConfigValue]:
        """Return the entries of the header."""
        return {wire_key(name): value for name, value in vars(self).items()}


def _entries(prefix: str, config: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def broadcast_records(instructions: Instructions) -> dict[str, ArrayRecord]:
    """Return the records that all nodes of a cohort receive alike."""
    sent = instructions.broadcast
    records = {"arrays": {"start": sent.start}, "vectors": sent.vectors, "buffers": _named(instructions.buffers)}
    return {name: to_record(tensors) for name, tensors in records.items() if tensors}


def read_instructions(node: NodeInstructions, content: RecordDict) -> Instructions:
    """Return the instructions in a message, as a client runner takes them."""
    start = read_tensors(content, "arrays")["start"]
    scalars = {name: start.new_tensor([value]) for name, value in node.scalar.items()}
    buffers = read_tensors(content, "buffers").get("buffers", start.new_empty(0))
    return Instructions(node.phase, node.round, Broadcast(start, read_tensors(content, "vectors"), scalars), buffers)


def reply_records(header: ReplyHeader, result: ClientResult, samples: int) -> RecordDict:
    """Return the content of a reply."""
    records = {"arrays": to_record(result.upload)}
    if result.buffers.numel():
        records["buffers"] = to_record(_named(result.buffers))
    metrics: dict[str, int | float] = {EXAMPLES: samples, SECONDS: result.seconds or 0.0}
    return RecordDict({**records, "metrics": MetricRecord({**metrics}), HEADER: ConfigRecord({**header.to_config()})})


def read_header(message: Message) -> Mapping[str, object] | None:
    """Return the header of a reply, unchecked; ``None`` if it has none."""
    header = message.content.get(HEADER)
    return cast(Mapping[str, object], header) if isinstance(header, ConfigRecord) else None


def read_metrics(content: RecordDict) -> Mapping[str, object]:
    """Return the first record of metrics, under any name, unchecked; empty if there is none."""
    found = (record for record in content.values() if isinstance(record, MetricRecord))
    return cast(Mapping[str, object], next(found, {}))


def to_record(named: NamedTensors) -> ArrayRecord:
    """Return named tensors as a record."""
    return ArrayRecord({name: Array(tensor.detach().contiguous().numpy()) for name, tensor in named.items()})


def read_tensors(content: RecordDict, name: str) -> dict[str, Tensor]:
    """Return the tensors of a record; empty if there is no such record."""
    record = content.get(name)
    return {key: _read_tensor(array) for key, array in record.items()} if isinstance(record, ArrayRecord) else {}


def _read_tensor(array: Array) -> Tensor:
    loaded = array.numpy()
    if not isinstance(loaded, np.ndarray):
        raise ValueError("the record does not contain an array")
    return torch.from_numpy(loaded)


def _named(buffers: Tensor) -> NamedTensors:
    return {"buffers": buffers} if buffers.numel() else {}
