"""The stability monitor: whether the weights of an aggregation amplify a disagreement between clients.

Weights that favour uploads close to the mean upload let the camp that is ahead win, and the next round the other one:
the accuracy starts to oscillate. The monitor recognises it from the uploads of a single round, before the oscillation
is visible (docs/stability.md):

1. The disputed direction e is that in which the uploads vary most.
2. The gain Γ is the change of the aggregate along e if all uploads move by a common distance along e. It is measured
   where the camps balance, that is where the mean upload has no component along e. Γ = 1 for uniform weights.
3. The run is about to oscillate if two camps with this gain would (:mod:`fedtaco.diagnostics.two_camps`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedtaco.diagnostics.two_camps import is_stable, period
from fedtaco.methods import Method, ServerState, TacoCorrection, Uploads
from fedtaco.randomness import generator
from fedtaco.records import finite_or_none
from fedtaco.uploads import Geometry

CURVATURES = (0.5, 1.5)
"""κ for which two camps must be stable; the uploads of a round do not reveal the curvature itself."""
MIN_SHARE = 0.15
"""Smaller parts of the squared norms of the uploads are not regarded as a disagreement between camps."""
MAX_ROWS = 32
"""Maximum number of uploads from which the disputed direction is computed; all are projected on it."""
SHIFT = 0.05
"""Distance over which Γ is measured, as a fraction of the norm of the mean upload at balance."""
CAMP = 0.5
"""Clients whose distance from the mean along e is below this fraction of the standard deviation are in no camp."""
LISTED = 8
"""Maximum number of clients of a camp that the warning names."""


@dataclass(frozen=True)
class Stability:
    """What the monitor found in a round."""

    gain: float
    """Γ, by which the weights amplify the mean along the disputed direction."""
    momentum: float
    """β, the part of the last move that clients add to their own, mean over clients."""
    relaxation: float
    """The factor by which the server scales the mean update."""
    share: float
    """The variance of the uploads along the disputed direction, as a part of their mean squared norm."""
    sides: Tensor
    """Position of each upload along the disputed direction, from -1 to 1; the mean upload is at 0."""
    clients: Sequence[int]

    @property
    def is_stable(self) -> bool:
        """Whether no disagreement is large enough, or two camps with this gain would not oscillate."""
        return self.share < MIN_SHARE or all(
            is_stable(self.gain, self.momentum, curvature, self.relaxation) for curvature in CURVATURES
        )

    @property
    def camps(self) -> tuple[list[int], list[int]]:
        """The clients on either side of the disagreement; those near the mean are in neither."""
        least = CAMP * float(self.sides.square().mean().sqrt())
        sides = dict(zip(self.clients, self.sides.tolist(), strict=True))
        return [own for own in sides if sides[own] <= -least], [own for own in sides if sides[own] >= least]

    @property
    def warning(self) -> str | None:
        """What is about to happen and what to do about it, without the final full stop; ``None`` if stable."""
        if self.is_stable:
            return None
        first, second = map(_format_clients, self.camps)
        rounds = period(self.gain, self.momentum, CURVATURES[-1], self.relaxation)
        return (
            f"aggregation weights amplify a disagreement between clients {first} and {second} {self.gain:.1f}-fold; "
            f"the accuracy is likely to oscillate with a period of about {rounds:.0f} rounds; use taco-steady, whose "
            "weights do not depend on the uploads, or average the last models (average_last)"
        )


def examine(method: Method, server: ServerState, uploads: Uploads) -> Stability | None:
    """Return what the uploads of a round reveal about the stability of the aggregation.

    Parameters
    ----------
    method
        The method, whose ``weigh`` is applied to shifted uploads.
    server
        The server's state before the round.
    uploads
        The aggregated uploads, with their weights.

    Returns
    -------
    Stability or None
        ``None`` if the method does not weigh uploads itself, so that Γ = 1, or if the uploads do not differ.

    Examples
    --------
    >>> from fedtaco.methods import Constants, FoolsGold
    >>> from fedtaco.uploads import UploadedVectors
    >>> updates = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, -2.0], [1.0, -2.0]])
    >>> constants, shares = Constants(clients=4, rounds=1, local_steps=1, local_lr=0.1), torch.full((4,), 0.25).double()
    >>> vectors = UploadedVectors({"update": updates})
    >>> uploads = Uploads(constants, torch.arange(4), vectors, torch.ones(4), shares)
    >>> uploads.aggregation_weights = FoolsGold().weigh(ServerState(torch.zeros(2)), uploads)
    >>> found = examine(FoolsGold(), ServerState(torch.zeros(2)), uploads)
    >>> round(found.gain, 2), found.camps  # Γ = 1 + u²/τ² - u²/|U|² with u = 2, τ = 1 and |U|² = 5
    (4.2, ([0, 1], [2, 3]))
    """
    if type(method).weigh is Method.weigh or len(uploads.clients) < 2:
        return None
    positions = _disputed_positions(uploads)
    if positions is None:
        return None
    gain = _gain(method, server, uploads, positions)
    if gain is None:
        return None
    spread = positions - positions.mean()
    return Stability(
        gain=gain,
        momentum=_momentum(method, uploads),
        relaxation=uploads.relaxation,
        share=float(spread.square().mean() / uploads.geometry.norms.square().mean()),
        sides=spread / spread.abs().max(),
        clients=uploads.clients.tolist(),
    )


def _disputed_positions(uploads: Uploads) -> Tensor | None:
    """Return the component of each upload along the disputed direction; ``None`` if all are the same.

    The first client that is clearly on one side is on the negative side, so that sides can be compared between rounds.
    """
    rows, count = None, len(uploads.clients)
    if count > MAX_ROWS:
        rows = generator(0, "disputed direction").permutation(count)[:MAX_ROWS].tolist()
    products = uploads.vectors.gram_matrix(rows=rows)
    centred = products - products.mean(0) - products.mean(1, keepdim=True) + products.mean()
    values, vectors = torch.linalg.eigh(centred)
    if not values[-1] > 1e-12 * products.trace():
        return None
    direction = uploads.vectors.weighted_sum(vectors[:, -1] / values[-1].sqrt(), rows=rows)
    positions = uploads.vectors.dots(direction)
    spread = positions - positions.mean()
    clear = spread[spread.abs() >= CAMP * spread.square().mean().sqrt()]
    return -positions if clear[0] > 0 else positions


def _gain(method: Method, server: ServerState, uploads: Uploads, positions: Tensor) -> float | None:
    """Return Γ, by differences; ``None`` if the mean upload has no component besides the disputed one."""
    geometry = uploads.geometry
    mean_norm = (geometry.norms * geometry.cosines).mean()  # since the dot products with the mean average to its square
    centre = positions.mean()
    balanced = float(mean_norm.square() - centre.square())
    if not balanced > 0:
        return None

    def aggregate(shift: Tensor) -> Tensor:
        """Return the component of the aggregate along e if all uploads are shifted along e."""
        dots = geometry.norms * geometry.cosines * mean_norm + shift * (positions + centre) + shift * shift
        norms = (geometry.norms.square() + 2 * shift * positions + shift * shift).clamp(min=0).sqrt()
        products = norms * (mean_norm.square() + 2 * shift * centre + shift * shift).clamp(min=0).sqrt()
        shifted = replace(uploads)
        shifted.geometry = Geometry(norms, torch.where(products > 0, dots / products, torch.zeros_like(dots)))
        return method.weigh(server, shifted).double() @ (positions + shift)

    step = SHIFT * balanced**0.5
    return finite_or_none(float((aggregate(step - centre) - aggregate(-step - centre)) / (2 * step)))


def _momentum(method: Method, uploads: Uploads) -> float:
    """Return β, by which TACO's correction repeats the last move in the next round; 0 for other methods."""
    if not isinstance(method, TacoCorrection):
        return 0.0
    return method.gain(uploads.constants.local_steps) * float(1 - uploads.geometry.alpha.mean())


def _format_clients(clients: Sequence[int]) -> str:
    """Format the clients of a camp; if it is empty, one client differs from many that are close to the mean.

    >>> _format_clients([0, 3, 11]), _format_clients([])
    ('{0, 3, 11}', 'the others')
    """
    if not clients:
        return "the others"
    more = f", … {len(clients) - LISTED} more" if len(clients) > LISTED else ""
    return f"{{{', '.join(map(str, clients[:LISTED]))}{more}}}"
