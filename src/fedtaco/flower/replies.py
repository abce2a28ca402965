"""Collection of replies: each is checked on arrival; a bad one is dropped and never stops the run."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from flwr.app import Message, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions, Traffic, normalize
from fedtaco.compression import Compression
from fedtaco.errors import RunStopped
from fedtaco.flower.arrays import InvalidArrays, read_tensors, wire_bytes
from fedtaco.flower.metrics import (
    MAX_EXAMPLES,
    ReportedMetrics,
    cap_counts,
    mean_metrics,
    read_count,
    read_metric,
    read_number,
)
from fedtaco.flower.upload_matrix import allocate_matrix
from fedtaco.flower.wire import EXAMPLES, SECONDS, TRAINING_LOSS, read_header, read_metrics, wire_key
from fedtaco.methods import NamedTensors
from fedtaco.parameters import Domain
from fedtaco.printable import printable, quoted
from fedtaco.screen import find_invalid

MIN_COUNT = 1e-6
"""Smallest weight of a reply."""
NO_HEADER = "it was not made by fedtaco.flower.train"
RAISED = "the client app raised an error"
NOT_LOADED = "the client app cannot be loaded"
REFUSED_BY_MOD = "a mod of the client app refused the message"
ERRORS = {1: NOT_LOADED, 2: RAISED, 5: "the node is gone", 6: REFUSED_BY_MOD}
"""Flower's error codes in words."""
FAULTS_OF_APPS = (NO_HEADER, RAISED, NOT_LOADED, REFUSED_BY_MOD)
"""Reasons for dropping a reply that another round does not change, if they hold for every node."""


class UnusableReply(Exception):
    """Raised for a reply that cannot be used; the message is the reason."""


@dataclass(frozen=True)
class UploadFormat:
    """What an honest reply to one phase of a round contains."""

    compression: Compression
    """Decodes the uploads."""
    template: NamedTensors
    """Names, shapes and types of the tensors of an upload."""
    payload: NamedTensors
    """The same of what a client sends: the upload after compression, and buffers."""
    min_buffers: Tensor
    """The lowest valid value of each buffer."""
    weighted_by_key: str | None
    """The metric that is the weight of a reply; ``None`` if all count alike."""


class ReplyCollector:
    """Collects the replies of a cohort to one set of instructions, one at a time and in any order.

    Parameters
    ----------
    expected
        What an honest reply contains.
    instructions
        What the cohort received.
    valid_steps
        For each client of the cohort, the numbers of local steps that it may have taken.
    """

    def __init__(self, expected: UploadFormat, instructions: Instructions, valid_steps: Mapping[int, Domain]) -> None:
        self.expected, self.instructions, self.valid_steps = expected, instructions, valid_steps
        self.cohort = list(valid_steps)
        self.rows = {client: row for row, client in enumerate(self.cohort)}
        self.matrices: dict[str, Tensor] = {}
        self.counts: dict[int, float] = {}
        self.steps: dict[int, int] = {}
        self.metrics: dict[int, ReportedMetrics] = {}
        self.traffic = Traffic(down=len(self.cohort) * instructions.nbytes)
        self.lost_memory: list[int] = []
        self.dropped: dict[int, str] = {}
        self.reported: list[int] = []
        """Dropped clients whose reason :meth:`take` has returned."""

    def take(self, client: int, message: Message) -> str | None:
        """Store a reply. If it cannot be used, drop it and return the reason."""
        if client in self.counts or client in self.dropped:
            return "it is the second reply of this round"
        try:
            self._take(client, message)
        except RunStopped:
            raise
        except Exception as error:
            known = isinstance(error, UnusableReply | InvalidArrays)
            self.dropped[client] = printable(str(error) if known else f"it cannot be read: {error}")
            self.reported.append(client)
            return self.dropped[client]
        return None

    def results(self, silence: str) -> CohortResults:
        """Return the results of the cohort; ``silence`` is the reason for dropping clients without a reply."""
        count, vectors = len(self.cohort), dict(self.matrices)
        results = CohortResults(
            cohort=self.cohort,
            clients=torch.tensor(self.cohort),
            steps=torch.tensor([self.steps.get(client, 1) for client in self.cohort]),
            shares=normalize(cap_counts([self.counts.get(client, 0.0) for client in self.cohort])),
            buffers=vectors.pop("buffers", self.instructions.buffers.expand(count, -1)),
            vectors=vectors,
            traffic=self.traffic,
            seconds={client: _seconds(own) for client, own in self.metrics.items()},
            training_losses={
                client: read_metric(TRAINING_LOSS, own.get(TRAINING_LOSS)) for client, own in self.metrics.items()
            },
        )
        unused = [row for row, client in enumerate(self.cohort) if client not in self.counts]
        results.drop({row: self.dropped.get(self.cohort[row], silence) for row in unused})
        return results

    def mean_metrics(self, results: CohortResults) -> tuple[MetricRecord, dict[int, list[str]]]:
        """Return the weighted means of the metrics in the used replies, and what is wrong with some, by client."""
        clients = results.clients.tolist()
        means, problems = mean_metrics([self.metrics[client] for client in clients], self.expected.weighted_by_key)
        return means, {clients[place]: own for place, own in problems.items()}

    def _take(self, client: int, message: Message) -> None:
        """Check and store a reply, or raise UnusableReply."""
        if message.has_error():
            raise UnusableReply(error_reason(message))
        header = read_header(message)
        if header is None:
            raise UnusableReply(NO_HEADER)
        self.traffic += Traffic(wire_up=wire_bytes(message.content))
        for name, expected in (("phase", self.instructions.phase), ("round", self.instructions.round)):
            found = header.get(wire_key(name))
            if found != expected:
                raise UnusableReply(f"it answers {wire_key(name)} {quoted(found)} instead of {expected!r}")
        steps, valid_steps = header.get(wire_key("steps")), self.valid_steps[client]
        if not isinstance(steps, int) or not valid_steps.admits(steps):
            raise UnusableReply(f"it states {quoted(steps)} steps instead of {valid_steps.describe()}")
        content = message.content
        metrics = read_metrics(content)
        count = _count(metrics, self.expected.weighted_by_key)
        vectors = self._vectors(client, content)
        for name, tensor in vectors.items():
            if name not in self.matrices:
                self.matrices[name] = allocate_matrix(len(self.cohort), tensor)
            self.matrices[name][self.rows[client]] = tensor
        self.counts[client], self.steps[client], self.metrics[client] = count, steps, metrics
        if header.get(wire_key("lost_memory")) is True:
            self.lost_memory.append(client)

    def _vectors(self, client: int, content: RecordDict) -> NamedTensors:
        """Return the decoded upload and the buffers, after checking sizes, names, shapes, types and values."""
        limits = {name: expected.nbytes for name, expected in self.expected.payload.items()}
        total = sum(limits.values())
        buffers = read_tensors(content, "buffers", limits.pop("buffers", 0))
        sent = read_tensors(content, "arrays", sum(limits.values()))
        self._require_template({**sent, **buffers})
        self.traffic += Traffic(up=total)
        vectors = self.expected.compression.decompress(self.instructions, client, sent, self.expected.template)
        received = buffers.get("buffers", self.instructions.buffers)
        rows = {name: tensor[None] for name, tensor in vectors.items()}
        for reason in find_invalid(rows, received[None], self.expected.min_buffers).values():
            raise UnusableReply(reason)
        return {**vectors, **buffers}

    def _require_template(self, found: NamedTensors) -> None:
        """Raise UnusableReply unless the tensors have the names, shapes and types of an honest reply."""
        if set(found) != set(self.expected.payload):
            raise UnusableReply(f"it contains {_names(found)} instead of {_names(self.expected.payload)}")
        for name, expected in self.expected.payload.items():
            tensor = found[name]
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                raise UnusableReply(
                    f"{name} has the shape {tuple(tensor.shape)} and type {tensor.dtype} instead of "
                    f"{tuple(expected.shape)} and {expected.dtype}"
                )


def error_reason(message: Message) -> str:
    """Return a description of an error reply."""
    code, reason = message.error.code, message.error.reason
    what = ERRORS.get(code, f"Flower reports error {code}")
    return f"{what}: {reason.removesuffix('.')}" if reason else what


def most_common(reasons: Iterable[str]) -> str:
    """Return the most common one of some reasons."""
    return Counter(reasons).most_common(1)[0][0]


def _count(metrics: ReportedMetrics, key: str | None) -> float:
    count = read_count(metrics, key)
    if count is None or count < MIN_COUNT:
        most = f" up to {MAX_EXAMPLES:g}" if key == EXAMPLES else ""
        raise UnusableReply(f"its metric {key} is {quoted(metrics.get(str(key)))} instead of a positive number{most}")
    return count


def _seconds(metrics: Mapping[str, object]) -> float | None:
    seconds = read_number(metrics.get(SECONDS))
    return seconds if seconds is not None and seconds >= 0 else None


def _names(named: Mapping[str, object]) -> str:
    return ", ".join(sorted(named)) or "nothing"
