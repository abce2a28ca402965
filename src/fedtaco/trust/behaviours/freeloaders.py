"""Freeloaders: clients that forge their updates, from what they received or from noise, instead of training."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.parameters import parameter
from fedtaco.trust.behaviours.base import ClientView, Freeloader, rms

FIRST_RANDOM = 1e-3
"""Largest coordinate of the noise that ``random`` sends while it has seen no move of the model."""


@dataclass(frozen=True)
class Replay(Freeloader):
    """Sends the last global move back, as the freeloaders in the paper do."""

    name = "replay"
    summary = "sends the last global move back"

    def forge(self, view: ClientView) -> Tensor:
        return view.last_move


@dataclass(frozen=True)
class ReplayScaled(Freeloader):
    """Sends the last global move back, scaled."""

    name = "replay-scaled"
    summary = "sends the last global move back, scaled"

    strength: float = parameter(0.3, "factor of the move")

    def forge(self, view: ClientView) -> Tensor:
        return self.strength * view.last_move


@dataclass(frozen=True)
class ReplayNoise(Freeloader):
    """Sends the last global move back with Gaussian noise."""

    name = "replay-noise"
    summary = "sends the last global move back with Gaussian noise"

    strength: float = parameter(0.5, "norm of the noise divided by that of the move")

    def forge(self, view: ClientView) -> Tensor:
        copy = view.last_move
        return copy + self.strength * rms(copy) * view.normal()


@dataclass(frozen=True)
class Zero(Freeloader):
    """Sends a zero update, as if the model were returned unchanged."""

    name = "zero"
    summary = "sends a zero update"

    def forge(self, view: ClientView) -> Tensor:
        return torch.zeros_like(view.start)


@dataclass(frozen=True)
class Disguised(Freeloader):
    """Sends noise that fades as 1/t, where t counts the rounds after the first (Fraboni et al., 2021)."""

    name = "disguised"
    summary = "sends noise that fades as 1/t"

    strength: float = parameter(1.0, "factor of the noise")

    def forge(self, view: ClientView) -> Tensor:
        if view.first_move == 0:
            return torch.zeros_like(view.start)
        return self.strength * view.first_move / (view.round - 1) * view.normal()


@dataclass(frozen=True)
class Random(Freeloader):
    """Sends uniform noise with about the same norm as the last global move."""

    name = "random"
    summary = "sends uniform noise as long as the last global move"

    strength: float = parameter(1.0, "factor of the noise")

    def forge(self, view: ClientView) -> Tensor:
        bound = math.sqrt(3) * rms(view.last_move)
        return self.strength * (bound or FIRST_RANDOM) * view.uniform()
