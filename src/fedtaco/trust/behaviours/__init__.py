"""Behaviours of simulated adversaries: freeloaders, and common attackers for comparison."""

from fedtaco.registry import Registry
from fedtaco.trust.behaviours.attackers import Boost, Gaussian, LabelFlip, SignFlip
from fedtaco.trust.behaviours.base import Behaviour, ClientView, Freeloader, parse_options
from fedtaco.trust.behaviours.freeloaders import Disguised, Random, Replay, ReplayNoise, ReplayScaled, Zero

BEHAVIOURS: Registry[Behaviour] = Registry(
    Behaviour, [Replay, ReplayScaled, ReplayNoise, Zero, Disguised, Random, SignFlip, Boost, LabelFlip, Gaussian]
)
"""Every registered behaviour by name."""


def parse_behaviour(spec: str) -> Behaviour:
    """Return the behaviour that a text describes.

    Parameters
    ----------
    spec
        ``name:strength:when``; ``strength`` and ``when`` are optional. The name of a user's own behaviour is
        ``package.module:Class``.

    Returns
    -------
    Behaviour
        The behaviour with these parameters.

    Raises
    ------
    InvalidInput
        If there is no such behaviour, or it does not have these parameters.

    Examples
    --------
    >>> parse_behaviour("replay-noise:0.1:late")
    ReplayNoise(when='late', strength=0.1)
    """
    name, options = BEHAVIOURS.split_options(spec)
    return parse_options(BEHAVIOURS.find(name), options, spec)


__all__ = ["BEHAVIOURS", "Behaviour", "ClientView", "Freeloader", "parse_behaviour"]
