"""The contract of detectors, which judge the uploads of a round before they are aggregated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.codecs import NO_CODEC, Codec
from fedtaco.methods import Broadcast, Constants, NamedTensors, Uploads
from fedtaco.parameters import Configurable, parameter
from fedtaco.records import Decision

LONG_UPLOADS = ("drop", "clip", "use")
"""What a detector may do with uploads that are too long."""


@dataclass(frozen=True)
class DetectorInput:
    """What the server knows once the uploads of a round have arrived."""

    broadcast: Broadcast
    """What the clients received in this round."""
    cohort: Tensor
    """All clients that received the broadcast, including those whose uploads cannot be used."""
    uploads: Uploads
    """The finite uploads, one row per client."""
    round: int
    partial_participation: bool
    """Whether only some of the clients take part in a round."""
    expelled: Tensor
    """Whether each client of the federation was expelled in an earlier round."""
    codec: Codec = NO_CODEC
    """How the uploads were compressed; they are as the server decoded them."""


@dataclass(frozen=True)
class Verdict:
    """What a detector decided about a round."""

    memory: NamedTensors
    """The detector's memory after the round."""
    dropped: Tensor
    """Boolean mask of the uploads that must not be used."""
    decisions: Sequence[Decision]
    """The decisions to record; every dropped upload needs one."""
    scores: Sequence[Mapping[str, float]]
    """For each upload, the named scores it was judged by."""
    expelled: Sequence[int] = ()
    """Clients to expel after this round."""


@dataclass(frozen=True, kw_only=True)
class Detector(Configurable):
    """Base of detectors: frozen dataclasses whose fields are parameters, as in methods.

    Uploads that are much longer than the median are clipped before a detector judges them, and dropped afterwards
    unless ``long_uploads`` says otherwise. A detector's memory consists of named tensors. It always contains
    ``strikes`` and ``seen`` (number of rounds taken part in), with one entry per client.
    """

    max_norm: float = parameter(5.0, "norm of an upload, in multiples of the median, from which it is too long", low=1)
    long_uploads: str = parameter(
        "drop", "what to do with uploads that are too long: drop them, clip them, or use them", choices=LONG_UPLOADS
    )

    kind: ClassVar[str] = "detector"
    is_active: ClassVar[bool] = True
    """Whether the detector ever drops an upload or expels a client."""

    def initial_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        """Return the memory before the first round: no client has taken part or has a strike."""
        return {
            "strikes": torch.zeros(constants.clients, dtype=torch.int64),
            "seen": torch.zeros(constants.clients, dtype=torch.int64),
        }

    def note(self, codec: Codec) -> str | None:
        """Return what the detector cannot find in uploads that are compressed in this way, in a sentence."""
        return None

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        """Judge the uploads of a round.

        Parameters
        ----------
        memory
            The detector's memory before the round, which must not be changed.
        given
            What the server knows about the round.

        Returns
        -------
        Verdict
            The uploads to drop, the decisions to record, and the memory after the round.
        """
        raise TypeError(f"{type(self).__name__} is a detector and must define judge()")


@dataclass(frozen=True)
class NormDetector(Detector):
    """Applies the bound on norms, which every detector has, and judges nothing else."""

    name = "norm"
    summary = "drops or clips uploads that are much longer than the median; expels nobody"

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        count = len(given.uploads.clients)
        return Verdict(memory, torch.zeros(count, dtype=torch.bool), [], [{}] * count)


@dataclass(frozen=True)
class Off(NormDetector):
    """Uses every finite upload, however long."""

    name = "off"
    summary = "uses every finite upload"
    is_active = False

    # Constants here, not parameters: a class variable removes the field that the base class declares.
    max_norm: ClassVar[float] = math.inf  # type: ignore[misc]  # mypy does not know this use
    long_uploads: ClassVar[str] = "use"  # type: ignore[misc]  # likewise
