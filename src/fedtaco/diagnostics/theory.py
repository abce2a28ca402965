"""Quantities of the paper's convergence analysis, as they are in one round of TACO and its parts.

Δ is the global direction, which clients receive, Δ' that of the round, Δ~ the mean over clients and steps of the
gradients (Definition 1), α_t the mean of the coefficients that clients received (Definition 2).
"""

from torch import Tensor

from fedtaco.methods import TacoCorrection, Uploads
from fedtaco.records import finite_or_none


def round_momentum(method: TacoCorrection, uploads: Uploads, alpha: Tensor) -> float:
    """Return β_t = B Σ p_i (1 - α_i), the factor of Δ in Δ'; B is γK, or γ if ``delta_scale`` is literal.

    Parameters
    ----------
    method
        TACO, or one of its parts with a correction.
    uploads
        The aggregated uploads, with their weights p_i.
    alpha
        The coefficient that each of these clients received.
    """
    return method.gain(uploads.constants.local_steps) * float(uploads.aggregation_weights @ (1 - alpha.double()))


def lemma_1_residual(before: Tensor, after: Tensor, mean_gradient: Tensor, alpha: float) -> float | None:
    """Return |Δ' - Δ~ - (1 - α_t) Δ| / |Δ'|; ``None`` if Δ' is zero.

    >>> import torch
    >>> lemma_1_residual(torch.tensor([2.0]), torch.tensor([4.0]), torch.tensor([3.0]), alpha=0.5)
    0.0
    """
    return relative_norm(after - mean_gradient - (1 - alpha) * before, after)


def lemma_2_residual(before: Tensor, after: Tensor, step: Tensor) -> float | None:
    """Return |z' - z + η_g Δ~| / |η_g Δ~|; ``None`` if Δ~ is zero.

    Parameters
    ----------
    before, after
        z and z', the paper's output before and after the round.
    step
        η_g Δ~.
    """
    return relative_norm(after - before + step, step)


def relative_norm(vector: Tensor, reference: Tensor) -> float | None:
    """Return the norm of a vector over that of another; ``None`` if the latter is zero, or the ratio is not finite."""
    scale = float(reference.norm())
    return finite_or_none(float(vector.norm()) / scale) if scale > 0 else None
