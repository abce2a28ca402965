"""Reading of replies: each is checked on arrival; a bad one is dropped and never stops the run."""

import math
from collections.abc import Mapping
from statistics import median

import torch
from flwr.app import Message, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.cohort import CohortResults, Instructions, normalize
from fedtaco.errors import RunStopped
from fedtaco.flower.upload_matrix import allocate_matrix
from fedtaco.flower.wire import SECONDS, read_header, read_metrics, read_tensors, wire_key
from fedtaco.methods import Method, NamedTensors
from fedtaco.trust import finite_rows

MAX_NORM_RATIO = 10_000.0
"""A vector that is this many times longer than the median of the round is dropped."""
MAX_METRIC = 1e300
"""Metrics above this value are treated as invalid, as NaN is."""
NO_HEADER = "it is not from fedtaco's client half"
RAISED = "the client app raised an error"
NOT_LOADED = "the client app cannot be loaded"
ERRORS = {1: NOT_LOADED, 2: RAISED, 5: "the node is gone"}
"""Flower's error codes in words."""


class UnusableReply(Exception):
    """A reply that cannot be used, with the reason."""


class ReplyCollector:
    """Collects the replies of a cohort to one set of instructions, in any order, one at a time.

    Parameters
    ----------
    method
        Decodes the uploads.
    instructions
        What the cohort was asked.
    cohort
        The clients that were asked.
    template
        Names, shapes and types of an honest reply's tensors, buffers included.
    local_steps
        Local steps of every client.
    weighted_by_key
        The metric by which replies are weighted; ``None`` if all count alike.
    """

    def __init__(
        self,
        method: Method,
        instructions: Instructions,
        cohort: list[int],
        template: NamedTensors,
        local_steps: int,
        weighted_by_key: str | None,
    ) -> None:
        self.method, self.instructions, self.cohort = method, instructions, cohort
        self.template, self.local_steps, self.weighted_by_key = template, local_steps, weighted_by_key
        self.rows = {client: row for row, client in enumerate(cohort)}
        self.matrices: dict[str, Tensor] = {}
        self.counts: dict[int, float] = {}
        self.norms: dict[str, dict[int, float]] = {}
        self.metrics: dict[int, Mapping[str, object]] = {}
        self.lost_memory: list[int] = []
        self.dropped: dict[int, str] = {}
        self.reported: list[int] = []
        """Clients whose reason for being dropped was returned by :meth:`take`."""

    def take(self, client: int, message: Message) -> str | None:
        """Store a reply; return the reason if it cannot be used."""
        if client in self.counts or client in self.dropped:
            return "it is the second of this round"
        try:
            self._take(client, message)
        except RunStopped:
            raise
        except Exception as error:
            known = isinstance(error, UnusableReply)
            self.dropped[client] = one_line(str(error) if known else f"it cannot be read: {error}")
            self.reported.append(client)
            return self.dropped[client]
        return None

    def results(self, silence: str) -> CohortResults:
        """Return the results; ``silence`` is the reason for clients without a reply."""
        self._drop_outliers()
        count, vectors = len(self.cohort), dict(self.matrices)
        results = CohortResults(
            cohort=self.cohort,
            clients=torch.tensor(self.cohort),
            steps=torch.full((count,), self.local_steps),
            shares=normalize([self.counts.get(client, 0.0) for client in self.cohort]),
            buffers=vectors.pop("buffers", torch.empty(count, 0, dtype=self.instructions.buffers.dtype)),
            vectors=vectors,
            seconds={client: _seconds(own) for client, own in self.metrics.items()},
        )
        unused = torch.tensor([client not in self.counts for client in self.cohort])
        results.drop(unused, {client: self.dropped.get(client, silence) for client in self.cohort})
        return results

    def mean_metrics(self, results: CohortResults) -> MetricRecord:
        """Return the numbers that all used replies have in common, averaged by their shares."""
        clients = results.clients.tolist()
        return mean_metrics([self.metrics[client] for client in clients], results.shares.tolist())

    def _take(self, client: int, message: Message) -> None:
        if message.has_error():
            raise UnusableReply(error_reason(message))
        header = read_header(message)
        if header is None:
            raise UnusableReply(NO_HEADER)
        for name, expected in (("phase", self.instructions.phase), ("round", self.instructions.round)):
            found = header.get(wire_key(name))
            if found != expected:
                raise UnusableReply(f"it answers {wire_key(name)} {found!r} instead of {expected!r}")
        content = message.content
        metrics = read_metrics(content)
        count = 1.0 if self.weighted_by_key is None else _count(metrics, self.weighted_by_key)
        vectors = self._vectors(content)
        for name, tensor in vectors.items():
            if name not in self.matrices:
                self.matrices[name] = allocate_matrix(len(self.cohort), tensor)
            self.matrices[name][self.rows[client]] = tensor
            self.norms.setdefault(name, {})[client] = float(torch.linalg.vector_norm(tensor))
        self.counts[client], self.metrics[client] = count, metrics
        if header.get(wire_key("lost_memory")) is True:
            self.lost_memory.append(client)

    def _vectors(self, content: RecordDict) -> NamedTensors:
        """Return the decoded upload and the buffers, all with the expected names, shapes and types, and finite."""
        found = {**self.method.decode(read_tensors(content, "arrays")), **read_tensors(content, "buffers")}
        if set(found) != set(self.template):
            raise UnusableReply(f"it holds {_names(found)} instead of {_names(self.template)}")
        for name, expected in self.template.items():
            tensor = found[name]
            if tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                raise UnusableReply(
                    f"{name} has the shape {tuple(tensor.shape)} and type {tensor.dtype} instead of "
                    f"{tuple(expected.shape)} and {expected.dtype}"
                )
        if not finite_rows({name: tensor[None] for name, tensor in found.items()}).all():
            raise UnusableReply("the upload is not finite")
        return found

    def _drop_outliers(self) -> None:
        for name, norms in self.norms.items():
            typical = _typical(list(norms.values()))
            for client in [client for client, norm in norms.items() if norm > MAX_NORM_RATIO * typical]:
                self.counts.pop(client, None)
                self.dropped[client] = f"the norm of {name} is {norms[client]:.3g}, the median's {typical:.3g}"


def error_reason(message: Message) -> str:
    """Return what an error reply says, in one line."""
    code, reason = message.error.code, message.error.reason
    what = ERRORS.get(code, f"Flower reports error {code}")
    return f"{what}: {reason}" if reason else what


def mean_metrics(metrics: list[Mapping[str, object]], shares: list[float]) -> MetricRecord:
    """Return the finite numbers that all replies have in common, averaged."""
    means = {}
    for name in metrics[0] if metrics else ():
        values = [value for value in (_number(own.get(name)) for own in metrics) if value is not None]
        if len(values) == len(metrics):
            means[name] = sum(share * value for share, value in zip(shares, values, strict=True))
    return MetricRecord({**means})


def metric_shares(metrics: list[Mapping[str, object]], key: str | None) -> list[float]:
    """Return the weight of each reply; one without the metric counts 0, unless none has it."""
    counts = [1.0 if key is None else max(_number(own.get(key)) or 0.0, 0.0) for own in metrics]
    if not any(counts):
        counts = [1.0] * len(metrics)
    return [count / sum(counts) for count in counts]


def one_line(text: str) -> str:
    """Return a stranger's text as one printable line of bounded length."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:2000]).split())
    return line if len(line) <= 300 else f"{line[:300]} …"


def _typical(norms: list[float]) -> float:
    """Return the median of the non-zero norms; of two in the middle, their geometric mean.

    >>> round(_typical([0.0, 1e-6, 1.0]), 9)
    0.001
    """
    logs = [math.log(norm) for norm in norms if norm > 0]
    return math.exp(median(logs)) if logs else 0.0


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -MAX_METRIC < value < MAX_METRIC else None


def _count(metrics: Mapping[str, object], key: str) -> float:
    count = _number(metrics.get(key))
    if count is None or count <= 0:
        raise UnusableReply(f"its metric {key} is {metrics.get(key)!r} instead of a positive number")
    return count


def _seconds(metrics: Mapping[str, object]) -> float | None:
    seconds = _number(metrics.get(SECONDS))
    return seconds if seconds is not None and seconds >= 0 else None


def _names(named: Mapping[str, object]) -> str:
    return ", ".join(sorted(named)) or "nothing"
