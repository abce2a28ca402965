"""A detector as a user would write it: ``own_detector:DropsZeros``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedtaco import parameter
from fedtaco.records import Decision
from fedtaco.trust import Detector, Verdict


@dataclass(frozen=True)
class DropsZeros(Detector):
    """Drops uploads of zeros; expels a client after some of them."""

    name = "drops-zeros"
    summary = "drops uploads of zeros"

    max_strikes: int = parameter(2, "uploads of zeros until a client is expelled", low=1, whole=True)

    def suspects(self, memory, given):
        """Return a mask of the uploads to drop."""
        is_zero = given.uploads.geometry.norms == 0
        return is_zero & ~is_zero.all()

    def judge(self, memory, given):
        clients, dropped = given.uploads.clients, self.suspects(memory, given)
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        strikes[clients] += dropped
        seen[clients] += 1
        expelled = torch.nonzero(strikes >= self.max_strikes).flatten().tolist()
        decisions = [
            Decision(client, "expelled" if client in expelled else "dropped", "zero", 0.0, 0.0, "the upload is zero")
            for client in clients[dropped].tolist()
        ]
        scores = [{"zero": float(is_zero)} for is_zero in dropped]
        return Verdict({**memory, "strikes": strikes, "seen": seen}, dropped, decisions, scores, expelled)
