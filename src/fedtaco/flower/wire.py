"""What crosses the network: records of plain numbers. Nothing that arrives is ever unpickled.

To a node go ``arrays`` (the starting point), ``vectors`` (what else the method broadcasts), ``buffers``
(where the model has some) and ``config`` (numbers and names). Back come ``arrays`` (the upload), ``buffers``,
``metrics``, and the mark of the client half, which says what is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.local import Assignment, Reply
from fedtaco.methods import Broadcast, Memory, Setting

MARK = "fedtaco"
"""The record by which the client half is known."""
EXAMPLES = "num-examples"
SECONDS = "seconds"
ConfigValue = int | float | str | bool
OWN_KEYS = frozenset(
    {"phase", "run", "client", "memory-round", "method", "seed", "batch-size", "frozen"}
    | {"clients", "rounds", "local-steps", "local-lr", "server-lr"}
)
"""What of a message's ``config`` is the strategy's own, beside Flower's ``server-round``."""


@dataclass(frozen=True)
class Task:
    """What a node is told beside vectors: the same for all but its number, its numbers and its memory."""

    phase: Literal["survey", "train"]
    round: int
    run: str
    """Names the run, also after a resume."""
    client: int
    memory_round: int
    """The last round whose answer of this client was used; it goes on with its memory of then. 0 is none."""
    method: str
    parameters: Mapping[str, float | str]
    setting: Setting
    batch_size: int
    seed: int
    frozen: str
    """The fingerprint of the server's frozen parameters, which are not sent."""
    numbers: Mapping[str, float]

    def config(self) -> dict[str, ConfigValue]:
        setting = self.setting
        rate = {} if setting.server_lr is None else {"server-lr": float(setting.server_lr)}
        return {
            "phase": self.phase,
            "server-round": self.round,
            "run": self.run,
            "client": self.client,
            "memory-round": self.memory_round,
            "method": self.method,
            "clients": setting.clients,
            "rounds": setting.rounds,
            "local-steps": setting.local_steps,
            "local-lr": float(setting.local_lr),
            **rate,
            "batch-size": self.batch_size,
            "seed": self.seed,
            "frozen": self.frozen,
            **{f"parameter.{name}": value for name, value in self.parameters.items()},
            **{f"number.{name}": value for name, value in self.numbers.items()},
        }

    @classmethod
    def of(cls, config: Mapping[str, object]) -> Task:
        try:
            return cls._of(config)
        except KeyError as error:
            raise InvalidInput(
                f"The message lacks {error}: it is not from fedtaco.flower.FedStrategy, which fedtaco.flower.train "
                "answers; use FedStrategy in the server app, of the same version of fedtaco."
            ) from error

    @classmethod
    def _of(cls, config: Mapping[str, object]) -> Task:
        plain = cast(dict[str, int], config)
        rates = cast(dict[str, float], config)
        words = cast(dict[str, str], config)
        return cls(
            phase="survey" if config["phase"] == "survey" else "train",
            round=plain["server-round"],
            run=words["run"],
            client=plain["client"],
            memory_round=plain["memory-round"],
            method=words["method"],
            parameters=cast(dict[str, float | str], _below("parameter.", config)),
            setting=Setting(
                plain["clients"], plain["rounds"], plain["local-steps"], rates["local-lr"], rates.get("server-lr")
            ),
            batch_size=plain["batch-size"],
            seed=plain["seed"],
            frozen=words["frozen"],
            numbers=cast(dict[str, float], _below("number.", config)),
        )


def _below(prefix: str, config: Mapping[str, object]) -> dict[str, object]:
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def vectors_to_send(assignment: Assignment) -> dict[str, ArrayRecord]:
    """The records that all nodes of a cohort are sent alike."""
    sent = assignment.broadcast
    records = {"arrays": {"start": sent.start}, "vectors": sent.vectors, "buffers": _named(assignment.buffers)}
    return {name: as_record(tensors) for name, tensors in records.items() if tensors}


def assignment_of(task: Task, content: RecordDict) -> Assignment:
    """What a node was sent, as its worker takes it."""
    start = tensors_of(content, "arrays")["start"]
    numbers = {name: start.new_tensor([value]) for name, value in task.numbers.items()}
    buffers = tensors_of(content, "buffers").get("buffers", start.new_empty(0))
    return Assignment(task.phase, task.round, Broadcast(start, tensors_of(content, "vectors"), numbers), buffers)


def reply_content(task: Task, reply: Reply, samples: int, *, lost_memory: bool) -> RecordDict:
    records = {"arrays": as_record(reply.upload)}
    if reply.buffers.numel():
        records["buffers"] = as_record(_named(reply.buffers))
    mark = {"phase": task.phase, "server-round": task.round, "client": task.client, "lost-memory": lost_memory}
    metrics: dict[str, int | float] = {EXAMPLES: samples, SECONDS: reply.seconds or 0.0}
    return RecordDict({**records, "metrics": MetricRecord({**metrics}), MARK: ConfigRecord({**mark})})


def mark_of(message: Message) -> Mapping[str, object] | None:
    """The mark of the client half, if the reply bears it."""
    mark = message.content.get(MARK)
    return cast(Mapping[str, object], mark) if isinstance(mark, ConfigRecord) else None


def metrics_of(content: RecordDict) -> Mapping[str, object]:
    """The first record of metrics, under whatever name; none if there is no such record."""
    found = (record for record in content.values() if isinstance(record, MetricRecord))
    return cast(Mapping[str, object], next(found, {}))


def as_record(named: Memory) -> ArrayRecord:
    return ArrayRecord({name: Array(tensor.detach().contiguous().numpy()) for name, tensor in named.items()})


def tensors_of(content: RecordDict, name: str) -> dict[str, Tensor]:
    """The tensors of a record; none if there is no such record."""
    record = content.get(name)
    return {key: _tensor(array) for key, array in record.items()} if isinstance(record, ArrayRecord) else {}


def _tensor(array: Array) -> Tensor:
    loaded = array.numpy()
    if not isinstance(loaded, np.ndarray):
        raise ValueError("an array is none")
    return torch.from_numpy(loaded)


def _named(buffers: Tensor) -> Memory:
    return {"buffers": buffers} if buffers.numel() else {}
