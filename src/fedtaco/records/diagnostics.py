"""The diagnostics of a run: one record per round, with one entry per client."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any


@dataclass(frozen=True)
class ClientDiagnostics:
    """One client in one round; ``None`` stands for a quantity that is not defined.

    What depends on the steps of a client is ``None`` for a client that misbehaves. ∇f is the gradient of the global
    loss at the global model w before the round, and U_i the upload.
    """

    client: int
    mu: float | None
    """μ_i = ∇f · U_i / |∇f|² (Assumption 2)."""
    gradient_cosine: float | None
    """c_i, the cosine of ∇f and U_i (Assumption 2)."""
    drift: float | None
    """Distance of the client's model after its steps from the mean of those of all clients."""
    mean_square_distance: float | None = None
    """Mean over the steps of |w - x|², the client's part of ε."""
    correction_ratio: float | None = None
    """Norm of the client's move by its correction over that of its move by its own gradients."""
    over_correction: float | None = None
    """The step along the correction over the step that minimises the global loss; see :attr:`is_over_corrected`."""

    @property
    def is_over_corrected(self) -> bool | None:
        """Whether a smaller correction would have left the client with a lower global loss; ``None`` if undefined."""
        return None if self.over_correction is None else over_corrects(self.over_correction)

    @property
    def bounded_over_correction(self) -> float | None:
        """The index for averages and colours: at most 2, and 2 if it is below 0.

        >>> [ClientDiagnostics(0, 1, 1, 1, over_correction=index).bounded_over_correction for index in (0.4, 9.0, -0.1)]
        [0.4, 2.0, 2.0]
        """
        index = self.over_correction
        return None if index is None else 2.0 if index < 0 else min(index, 2.0)

    @property
    def norm_ratio(self) -> float | None:
        """μ_i / c_i, which is |U_i| / |∇f|: the angle cancels."""
        return self.mu / self.gradient_cosine if self.mu is not None and self.gradient_cosine else None


def over_corrects(index: float) -> bool:
    """Return whether an over-correction index is that of a step beyond the minimum.

    Below 0, the correction leads away from the minimum, so that any step along it is too long.

    >>> over_corrects(0.4), over_corrects(1.3), over_corrects(-0.2)
    (False, True, True)
    """
    return index > 1 or index < 0


@dataclass(frozen=True)
class RoundDiagnostics:
    """One round; ``None`` stands for a quantity that is not defined for the method or in this round."""

    round: int
    gradient_norm: float | None
    """|∇f(w)|, before the round."""
    smoothness: float | None
    """|∇f(w') - ∇f(w)| / |w' - w|, where w' is the global model after the round: a lower bound of L."""
    rate_sum: float
    """K times the local rate: the length of a round's steps in units of the gradient."""
    alpha: float | None = None
    """α_t, the mean of the coefficients α_i that the clients received."""
    momentum: float | None = None
    """β_t, the fraction of the last global direction that the new one contains, for TACO and its parts."""
    mean_square_distance: float | None = None
    """ε_t, the mean over clients and steps of |w - x|²."""
    lemma_1_residual: float | None = None
    """|Δ' - Δ~ - (1 - α_t) Δ| / |Δ'|, for TACO and its parts; 0 if Lemma 1 holds in this round."""
    lemma_2_residual: float | None = None
    """|z' - z + η_g Δ~| / |η_g Δ~|, for TACO and its parts; 0 if Lemma 2 holds in this round."""
    over_correction: float | None = None
    """The over-correction index of the whole round: of everything in the server's move but the clients' gradients."""
    clients: list[ClientDiagnostics] = field(default_factory=list)


@dataclass(frozen=True)
class Diagnostics:
    """The diagnostics of all rounds of a run, and what follows from them for the paper's constants.

    >>> client = ClientDiagnostics(0, mu=0.5, gradient_cosine=0.25, drift=1.0)
    >>> record = RoundDiagnostics(1, gradient_norm=3.0, smoothness=2.0, rate_sum=0.5, alpha=0.5, clients=[client])
    >>> Diagnostics([record]).error_terms  # (L G (1 - α) / (K η N) * μ/c)² = (2 * 3 * 0.5 / 0.5 * 2)²
    [144.0]
    """

    rounds: list[RoundDiagnostics] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[RoundDiagnostics]:
        return iter(self.rounds)

    def __getitem__(self, index: int) -> RoundDiagnostics:
        return self.rounds[index]

    @property
    def smoothness(self) -> float:
        """L, the largest smoothness that was seen: a lower bound of that of Assumption 1."""
        return max((record.smoothness or 0.0 for record in self.rounds), default=0.0)

    @property
    def gradient_bound(self) -> float:
        """G, the largest norm of the gradient of the global loss that was seen (Assumption 3)."""
        return max((record.gradient_norm or 0.0 for record in self.rounds), default=0.0)

    @property
    def assumption_2(self) -> dict[int, tuple[float, float]]:
        """For each client, the smallest μ_i and the largest c_i that hold in all rounds; a c_i <= 0 violates it."""
        pairs: dict[int, list[tuple[float, float]]] = {}
        for one in self._clients():
            if one.mu is not None and one.gradient_cosine is not None:
                pairs.setdefault(one.client, []).append((one.mu, one.gradient_cosine))
        return {client: (max(mu for mu, _ in own), min(c for _, c in own)) for client, own in sorted(pairs.items())}

    @property
    def error_terms(self) -> list[float | None]:
        """Y_t of Theorem 1 for each round; ``None`` in rounds without coefficients α_i.

        In place of μ_i / c_i stands the largest |U_i| / |∇f| of the client: the smallest value for which the step of
        the proof that uses μ_i / c_i holds.
        """
        ratios: dict[int, float] = {}
        for one in self._clients():
            ratios[one.client] = max(ratios.get(one.client, 0.0), one.norm_ratio or 0.0)
        scale = self.smoothness * self.gradient_bound
        return [
            None
            if record.alpha is None or not record.clients or not record.rate_sum
            else (
                scale
                * (1 - record.alpha)
                * sum(ratios[one.client] for one in record.clients)
                / (record.rate_sum * len(record.clients))
            )
            ** 2
            for record in self.rounds
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return one row per round, as ``pandas.DataFrame`` accepts them."""
        rows = [{name: value for name, value in vars(record).items() if name != "clients"} for record in self.rounds]
        return [{**row, "error_term": term} for row, term in zip(rows, self.error_terms, strict=True)]

    def client_table(self) -> list[dict[str, Any]]:
        """Return one row per client and round."""
        return [{"round": record.round, **vars(one)} for record in self.rounds for one in record.clients]

    def _clients(self) -> Iterator[ClientDiagnostics]:
        return (one for record in self.rounds for one in record.clients)

    def summarize(self) -> dict[str, Any]:
        """Return the entry of ``summary.json`` on over-correction.

        It contains the number of pairs of a client and a round for which the index is defined, the share of these that
        are over-corrected, the share in which the correction even leads uphill, and the clients that are over-corrected
        in most of their rounds; and the number of rounds for which the index of the round is defined, and of those that
        are over-corrected.
        """
        indices: dict[int, list[float]] = {}
        for one in self._clients():
            if one.over_correction is not None:
                indices.setdefault(one.client, []).append(one.over_correction)
        everything = [index for own in indices.values() for index in own]
        rounds = [record.over_correction for record in self.rounds if record.over_correction is not None]
        shares = {client: fmean(map(over_corrects, own)) for client, own in indices.items()}
        return {
            "measured": len(everything),
            "share": fmean(map(over_corrects, everything)) if everything else None,
            "uphill": fmean(index < 0 for index in everything) if everything else None,
            "measured_clients": len(indices),
            "clients": sorted(client for client, share in shares.items() if share > 0.5),
            "measured_rounds": len(rounds),
            "rounds": sum(map(over_corrects, rounds)),
        }
