"""The paper's detector (Eq. 10 and Algorithm 2): expel a client whose α_i reached κ in λ rounds."""

import math
from dataclasses import dataclass

import torch

from fedtaco.methods import Constants, NamedTensors
from fedtaco.parameters import parameter
from fedtaco.records import Decision
from fedtaco.trust.base import Detector, DetectorInput, Verdict


@dataclass(frozen=True)
class PaperDetector(Detector):
    """One strike per round with α_i ≥ κ; a client with λ strikes is expelled from the next round on.

    Until then its uploads are used. An upload alone in its round is compared with nothing and gets no
    strike. Under partial participation a client could not collect λ strikes in time, so it is expelled
    at max(3, λ/T of the rounds it took part in).
    """

    name = "paper"
    summary = "expels clients whose α reached κ in λ rounds; uses their uploads until then"

    kappa: float = parameter(0.6, "κ, the α from which an upload is suspicious", low=0, open_low=True, high=1)
    max_strikes: int | None = parameter(
        None, "λ, strikes until a client is expelled; T/5 rounded up unless given", low=1, whole=True
    )

    def limit(self, constants: Constants) -> int:
        """Return λ."""
        return math.ceil(constants.rounds / 5) if self.max_strikes is None else self.max_strikes

    def judge(self, memory: NamedTensors, given: DetectorInput) -> Verdict:
        uploads = given.uploads
        strikes, seen = memory["strikes"].clone(), memory["seen"].clone()
        seen[uploads.clients] += 1
        if len(uploads.clients) > 1:
            strikes[uploads.clients] += uploads.geometry.alpha >= self.kappa
        limit, rounds = self.limit(uploads.constants), uploads.constants.rounds
        out = strikes >= limit
        if given.partial_participation:
            out = (strikes >= 3) & (strikes * rounds >= limit * seen)
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
            if out[client] and not memory["expelled"][client]
        ]
        none_dropped = torch.zeros(len(uploads.clients), dtype=torch.bool)
        scores = [{"alpha": alpha} for alpha in uploads.geometry.alpha.tolist()]
        new_memory = {"strikes": strikes, "seen": seen, "expelled": memory["expelled"] | out}
        return Verdict(new_memory, none_dropped, decisions, scores)
