"""Two camps of clients that pull the model in opposite directions, near the point where they balance.

Let x be the distance of the model from that point, D the last move of the server, and h the curvature of the clients'
losses along the disputed direction. K local steps at the rate η, with a correction of β times the last move, give a
mean upload of ρx + φβD, where κ = Kηh, ρ = 1 - exp(-κ) and φ = ρ / κ. The server moves by Γ times the mean upload:

    D <- Γ (ρx + φβD)
    x <- x - sD

Γ = 1 for uniform weights (docs/stability.md derives it for others), and s is the server's relaxation, 1 by default.
"""

import cmath
import math


def multipliers(gain: float, momentum: float, curvature: float, relaxation: float = 1.0) -> tuple[complex, complex]:
    """Return the two factors by which modes of the model change in a round, the larger one in absolute value first.

    Parameters
    ----------
    gain
        Γ, by which aggregation amplifies the mean along the disputed direction.
    momentum
        β, the part of the last move that clients add to their own.
    curvature
        κ = Kηh, positive.
    relaxation
        s, by which the server scales its move.

    Examples
    --------
    >>> first, _ = multipliers(gain=1.0, momentum=0.0, curvature=1.0)  # FedAvg: x shrinks by exp(-κ)
    >>> round(first.real, 3)
    0.368
    """
    response = -math.expm1(-curvature)
    kept = gain * momentum * response / curvature
    trace = 1 + kept - relaxation * gain * response
    root = cmath.sqrt(trace * trace - 4 * kept)
    first, second = sorted(((trace + root) / 2, (trace - root) / 2), key=abs, reverse=True)
    return first, second


def is_stable(gain: float, momentum: float, curvature: float, relaxation: float = 1.0) -> bool:
    """Return whether both modes decay: Γφβ < 1 and Γ (sρ - 2φβ) < 2.

    >>> is_stable(gain=3.0, momentum=0.0, curvature=1.0), is_stable(gain=3.0, momentum=0.6, curvature=1.0)
    (True, False)
    """
    return abs(multipliers(gain, momentum, curvature, relaxation)[0]) < 1


def period(gain: float, momentum: float, curvature: float, relaxation: float = 1.0) -> float:
    """Return the number of rounds in which the dominant mode oscillates once; infinity if it does not oscillate.

    >>> period(gain=4.0, momentum=0.0, curvature=1.0)  # without momentum, the model alternates
    2.0
    """
    angle = abs(cmath.phase(multipliers(gain, momentum, curvature, relaxation)[0]))
    return 2 * math.pi / angle if angle else math.inf
