"""The contract of detectors: judge the uploads of a round before they are aggregated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.methods import Broadcast, Constants, NamedTensors, Uploads
from fedtaco.parameters import Configurable
from fedtaco.records import Decision


@dataclass(frozen=True)
class DetectorInput:
    """What the server knows once the uploads of a round have arrived."""

    broadcast: Broadcast
    cohort: Tensor
    """All clients that received the broadcast, including those whose uploads cannot be used."""
    uploads: Uploads
    round: int
    partial_participation: bool
    """Whether a round asks only part of the clients."""


@dataclass(frozen=True)
class Verdict:
    """What a detector decided about a round."""

    memory: NamedTensors
    """The detector's memory after the round."""
    dropped: Tensor
    """Boolean mask of the uploads that must not be used."""
    decisions: Sequence[Decision]
    scores: Sequence[Mapping[str, float]]
    """For each upload, the named scores it was judged by."""


@dataclass(frozen=True)
class Detector(Configurable):
    """Base of detectors: frozen dataclasses whose fields are parameters, as in methods.

    A detector's memory is plain data. It always holds, per client, ``strikes``, ``seen`` (rounds
    taken part in) and ``expelled``.
    """

    kind: ClassVar[str] = "detector"
    is_active: ClassVar[bool] = True
    """Whether the detector ever drops an upload or expels a client."""

    def initial_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        """Return the memory before the first round: no client has been seen, struck or expelled."""
        return {
            "strikes": torch.zeros(constants.clients, dtype=torch.int64),
            "seen": torch.zeros(constants.clients, dtype=torch.int64),
            "expelled": torch.zeros(constants.clients, dtype=torch.bool),
        }

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        """Judge the uploads of a round."""
        raise TypeError(f"{type(self).__name__} is a detector and must define judge()")


@dataclass(frozen=True)
class Off(Detector):
    """Judges nothing."""

    name = "off"
    summary = "uses every finite upload"
    is_active = False

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        count = len(given.uploads.clients)
        return Verdict(memory, torch.zeros(count, dtype=torch.bool), [], [{}] * count)
