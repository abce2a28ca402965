"""The door of the server: each reply is checked on arrival; a bad one costs itself, never the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

import torch
from flwr.app import Message, MetricRecord, RecordDict
from torch import Tensor

from fedtaco.errors import RunStopped
from fedtaco.flower.rows import matrix_for
from fedtaco.flower.wire import SECONDS, mark_of, metrics_of, tensors_of
from fedtaco.local import Assignment
from fedtaco.methods import Memory, Method, Setting, Uploads
from fedtaco.rounds import Answers, shares_by
from fedtaco.trust import finite_rows

LONGEST = 10_000.0
"""How many times longer than the median of the round a vector may be."""
LARGEST = 1e300
"""Beyond it a metric is no number; ``nan`` is none either."""
NO_MARK = "it is not from fedtaco's client half"
RAISED = "the client app raised an error"
NOT_LOADED = "the client app cannot be loaded"
ERRORS = {1: NOT_LOADED, 2: RAISED, 5: "the node is gone"}
"""Flower's error codes in words."""


class Unusable(Exception):
    """A reply that cannot be used, with the reason."""


class Collecting:
    """Takes the replies of a cohort to one assignment, in any order, one at a time."""

    def __init__(
        self,
        method: Method,
        setting: Setting,
        assignment: Assignment,
        cohort: list[int],
        template: Memory,
        weighted_by_key: str | None,
    ) -> None:
        self.method, self.setting, self.assignment, self.cohort = method, setting, assignment, cohort
        self.template, self.weighted_by_key = template, weighted_by_key
        self.rows = {client: row for row, client in enumerate(cohort)}
        self.matrices: dict[str, Tensor] = {}
        self.counts: dict[int, float] = {}
        self.norms: dict[str, dict[int, float]] = {}
        self.metrics: dict[int, Mapping[str, object]] = {}
        self.lost_memory: list[int] = []
        self.dropped: dict[int, str] = {}
        self.told: list[int] = []
        """Those of them whose reason was given when the reply came."""

    def take(self, client: int, message: Message) -> str | None:
        """Take a reply in; the reason if it cannot be used."""
        if client in self.counts or client in self.dropped:
            return "it is the second of this round"
        try:
            self._take(client, message)
        except RunStopped:
            raise
        except Exception as error:
            known = isinstance(error, Unusable)
            self.dropped[client] = short(str(error) if known else f"it cannot be read: {error}")
            self.told.append(client)
            return self.dropped[client]
        return None

    def answers(self, silence: str) -> Answers:
        """What was taken; ``silence`` is the reason of those who did not reply."""
        self._drop_the_outsized()
        count, vectors = len(self.cohort), dict(self.matrices)
        answers = Answers(
            cohort=self.cohort,
            buffers=vectors.pop("buffers", torch.empty(count, 0, dtype=self.assignment.buffers.dtype)),
            uploads=Uploads(
                setting=self.setting,
                clients=torch.tensor(self.cohort),
                vectors=vectors,
                steps=torch.full((count,), self.setting.local_steps),
                shares=shares_by([self.counts.get(client, 0.0) for client in self.cohort]),
            ),
            memories={},
            seconds={client: _seconds(own) for client, own in self.metrics.items()},
            dropped={},
        )
        unused = torch.tensor([client not in self.counts for client in self.cohort])
        return answers.leaving_out(unused, {client: self.dropped.get(client, silence) for client in self.cohort})

    def mean_metrics(self, answers: Answers) -> MetricRecord:
        """The numbers that all used replies have in common, averaged by their shares."""
        clients = answers.uploads.clients.tolist()
        return mean_metrics([self.metrics[client] for client in clients], answers.uploads.shares.tolist())

    def _take(self, client: int, message: Message) -> None:
        if message.has_error():
            raise Unusable(error_reason(message))
        mark = mark_of(message)
        if mark is None:
            raise Unusable(NO_MARK)
        for name, wanted in (("phase", self.assignment.phase), ("server-round", self.assignment.round)):
            if mark.get(name) != wanted:
                raise Unusable(f"it answers {name} {mark.get(name)!r} instead of {wanted!r}")
        content = message.content
        metrics = metrics_of(content)
        count = 1.0 if self.weighted_by_key is None else _count(metrics, self.weighted_by_key)
        vectors = self._vectors(content)
        for name, tensor in vectors.items():
            if name not in self.matrices:
                self.matrices[name] = matrix_for(len(self.cohort), tensor)
            self.matrices[name][self.rows[client]] = tensor
            self.norms.setdefault(name, {})[client] = float(torch.linalg.vector_norm(tensor))
        self.counts[client], self.metrics[client] = count, metrics
        if mark.get("lost-memory") is True:
            self.lost_memory.append(client)

    def _vectors(self, content: RecordDict) -> Memory:
        """The upload as full vectors of the right names, shapes and types, and the buffers; all finite."""
        found = {**self.method.decode(tensors_of(content, "arrays")), **tensors_of(content, "buffers")}
        if set(found) != set(self.template):
            raise Unusable(f"it holds {_names(found)} instead of {_names(self.template)}")
        for name, wanted in self.template.items():
            tensor = found[name]
            if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype:
                raise Unusable(
                    f"{name} has the shape {tuple(tensor.shape)} and type {tensor.dtype} instead of "
                    f"{tuple(wanted.shape)} and {wanted.dtype}"
                )
        if not finite_rows({name: tensor[None] for name, tensor in found.items()}).all():
            raise Unusable("the upload is not finite")
        return found

    def _drop_the_outsized(self) -> None:
        for name, norms in self.norms.items():
            typical = _typical(list(norms.values()))
            for client in [client for client, norm in norms.items() if norm > LONGEST * typical]:
                self.counts.pop(client, None)
                self.dropped[client] = f"the norm of {name} is {norms[client]:.3g}, the median's {typical:.3g}"


def error_reason(message: Message) -> str:
    """What an error reply says, in a line."""
    code, reason = message.error.code, message.error.reason
    what = ERRORS.get(code, f"Flower reports error {code}")
    return f"{what}: {reason}" if reason else what


def mean_metrics(metrics: list[Mapping[str, object]], shares: list[float]) -> MetricRecord:
    """The finite numbers that all have in common, averaged."""
    means = {}
    for name in metrics[0] if metrics else ():
        values = [value for value in (_number(own.get(name)) for own in metrics) if value is not None]
        if len(values) == len(metrics):
            means[name] = sum(share * value for share, value in zip(shares, values, strict=True))
    return MetricRecord({**means})


def shares_of(metrics: list[Mapping[str, object]], key: str | None) -> list[float]:
    """What each of some replies counts; one that does not say counts nothing, unless none does."""
    counts = [1.0 if key is None else max(_number(own.get(key)) or 0.0, 0.0) for own in metrics]
    if not any(counts):
        counts = [1.0] * len(metrics)
    return [count / sum(counts) for count in counts]


def short(text: str) -> str:
    """A stranger's words in one line of bounded length."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:2000]).split())
    return line if len(line) <= 300 else f"{line[:300]} …"


def _typical(norms: list[float]) -> float:
    """The median of those above zero; of two in the middle the geometric mean, so that neither rules out the other.

    >>> round(_typical([0.0, 1e-6, 1.0]), 9)
    0.001
    """
    logs = [math.log(norm) for norm in norms if norm > 0]
    return math.exp(median(logs)) if logs else 0.0


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -LARGEST < value < LARGEST else None


def _count(metrics: Mapping[str, object], key: str) -> float:
    count = _number(metrics.get(key))
    if count is None or count <= 0:
        raise Unusable(f"its metric {key} is {metrics.get(key)!r} instead of a positive number")
    return count


def _seconds(metrics: Mapping[str, object]) -> float | None:
    seconds = _number(metrics.get(SECONDS))
    return seconds if seconds is not None and seconds >= 0 else None


def _names(named: Mapping[str, object]) -> str:
    return ", ".join(sorted(named)) or "nothing"
