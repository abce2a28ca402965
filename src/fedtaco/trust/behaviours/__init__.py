"""What misbehaving clients do: freeloaders, and the usual attackers for contrast."""

from fedtaco.registry import Registry
from fedtaco.trust.behaviours.attackers import Gaussian, LabelFlip, SignFlip
from fedtaco.trust.behaviours.base import Behaviour, ClientView, Freeloader, parse_options
from fedtaco.trust.behaviours.freeloaders import Disguised, Random, Replay, ReplayNoise, ReplayScaled, Zero

BEHAVIOURS: Registry[Behaviour] = Registry(
    Behaviour, [Replay, ReplayScaled, ReplayNoise, Zero, Disguised, Random, SignFlip, LabelFlip, Gaussian]
)
"""Every registered behaviour by name."""


def parse_behaviour(spec: str) -> Behaviour:
    """Return the behaviour that ``name:strength:when`` describes; strength and time are optional.

    A user's own behaviour is named as ``package.module:Class``.

    >>> parse_behaviour("replay-noise:0.1:late")
    ReplayNoise(when='late', strength=0.1)
    """
    name, *options = spec.split(":")
    if name not in BEHAVIOURS and options:
        name, options = f"{name}:{options[0]}", options[1:]
    return parse_options(BEHAVIOURS.find(name), options, spec)


__all__ = ["BEHAVIOURS", "Behaviour", "ClientView", "Freeloader", "parse_behaviour"]
