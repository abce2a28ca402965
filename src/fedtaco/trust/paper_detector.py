"""The paper's detector (Eq. 10 and Algorithm 2): expels clients whose α_i reached κ in λ rounds."""

import math
from dataclasses import dataclass

import torch

from fedtaco.methods import Constants, NamedTensors
from fedtaco.parameters import parameter
from fedtaco.records import Decision
from fedtaco.trust.detector import Detector, DetectorInput, Verdict


@dataclass(frozen=True)
class PaperDetector(Detector):
    """Expels a client after λ strikes, where a strike is a round with α_i ≥ κ.

    A client's uploads are used until it is expelled. If a round has only one upload, its client gets no strike, since
    there is nothing to compare it with. Under partial participation, λ is multiplied by the fraction of the T rounds in
    which the client has taken part, and at least 3 strikes are required.
    """

    name = "paper"
    summary = "expels clients whose α reached κ in λ rounds; uses their uploads until then"

    kappa: float = parameter(0.6, "κ, the α from which an upload is suspicious", low=0, open_low=True, high=1)
    max_strikes: int | None = parameter(
        None, "λ, strikes until a client is expelled; T/5 rounded up by default", low=1, whole=True
    )

    def limit(self, constants: Constants) -> int:
        """Return λ: ``max_strikes``, or T/5 rounded up if it is not set."""
        return math.ceil(constants.rounds / 5) if self.max_strikes is None else self.max_strikes

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        uploads = given.uploads
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[uploads.clients] += 1
        if len(uploads.clients) > 1:
            strikes[uploads.clients] += uploads.geometry.alpha >= self.kappa
        limit, rounds = self.limit(uploads.constants), uploads.constants.rounds
        has_enough = strikes >= limit
        if given.partial_participation:
            has_enough = (strikes >= 3) & (strikes * rounds >= limit * seen)
        decisions = [
            Decision(
                client=client,
                action="expelled",
                test="alpha",
                score=float(uploads.geometry.alpha[row]),
                threshold=self.kappa,
                reason=f"strikes for α at or above {self.kappa:g}: {int(strikes[client])}",
            )
            for row, client in enumerate(uploads.clients.tolist())
            if has_enough[client] and not given.expelled[client]
        ]
        none_dropped = torch.zeros(len(uploads.clients), dtype=torch.bool)
        scores = [{"alpha": alpha} for alpha in uploads.geometry.alpha.tolist()]
        expelled = torch.nonzero(has_enough & ~given.expelled).flatten().tolist()
        return Verdict({"strikes": strikes, "seen": seen}, none_dropped, decisions, scores, expelled)
