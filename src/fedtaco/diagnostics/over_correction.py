"""The over-correction index: how far a correction goes, compared with what is best for the global loss f.

Let p be the point that a client, or the server, reaches by gradients alone, and v its move by the correction, which
takes it from p to p + v. The quadratic that has the slopes of f along v at both ends is lowest at p + s v with

    s = -∇f(p)·v / (∇f(p + v)·v - ∇f(p)·v)

and the index is 1 / s, the step that was taken over the step that would have been best: below 1, more of the correction
would have been better; above 1, less of it. It is negative if the correction leads away from the minimum, so that none
would have been better. Whether it is above 1 or below 0, the loss rises along v at the point that was reached. If the
curvature, which is the denominator, is not positive, there is no minimum, and no index.
"""

from collections.abc import Callable

from torch import Tensor

from fedtaco.records import finite_or_none

NEGLIGIBLE = 1e-4
"""A correction has no index if its norm is at most this fraction of that of the gradients' move; it may be rounding."""


def over_correction(slope_before: float, slope_after: float) -> float | None:
    """Return the index, given the slopes of the global loss along a correction without and with it.

    Parameters
    ----------
    slope_before, slope_after
        ∇f(p)·v and ∇f(p + v)·v.

    Returns
    -------
    float or None
        ``None`` if the curvature is not positive.

    Examples
    --------
    >>> over_correction(-2.0, -1.0)  # half of the best step
    0.5
    >>> over_correction(-2.0, 2.0)  # twice the best step
    2.0
    >>> over_correction(1.0, 3.0)  # away from the minimum
    -2.0
    """
    curvature = slope_after - slope_before
    if not curvature > 0 or slope_before == 0:
        return None
    return finite_or_none(-curvature / slope_before)


def index_of_move(
    gradient: Callable[[Tensor], Tensor], weights: Tensor, by_gradients: Tensor, by_correction: Tensor
) -> float | None:
    """Return the index of a move from ``weights``; ``None`` if it contains no correction, or the index is undefined.

    Parameters
    ----------
    gradient
        Returns the gradient of the global loss at a point.
    weights
        The global model before the round.
    by_gradients, by_correction
        The two parts of the move, both of which are subtracted from the weights.
    """
    if by_correction.norm() <= NEGLIGIBLE * by_gradients.norm():
        return None
    without = weights.double() - by_gradients
    before, after = (gradient(point.to(weights.dtype)) for point in (without, without - by_correction))
    return over_correction(-float(before @ by_correction), -float(after @ by_correction))
