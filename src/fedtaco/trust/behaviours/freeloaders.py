"""Freeloaders: clients that never train and forge an upload from what they received."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.parameters import parameter
from fedtaco.trust.behaviours.base import ClientView, Freeloader, rms

FIRST_RANDOM = 1e-3
"""Size of the numbers of ``random`` in rounds before which the client saw no move of the model."""


@dataclass(frozen=True)
class Replay(Freeloader):
    """Sends the last global move back, as the paper's freeloaders do."""

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

    strength: float = parameter(0.5, "length of the noise over that of the move")

    def forge(self, view: ClientView) -> Tensor:
        copy = view.last_move
        return copy + self.strength * rms(copy) * view.normal()


@dataclass(frozen=True)
class Zero(Freeloader):
    """Sends the model back as it was received."""

    name = "zero"
    summary = "sends a zero update"

    def forge(self, view: ClientView) -> Tensor:
        return torch.zeros_like(view.start)


@dataclass(frozen=True)
class Disguised(Freeloader):
    """Sends the model back with noise that fades as 1/t (Fraboni et al., 2021)."""

    name = "disguised"
    summary = "sends noise that fades as 1/t"

    strength: float = parameter(1.0, "factor of the noise")

    def forge(self, view: ClientView) -> Tensor:
        if view.first_move == 0:
            return torch.zeros_like(view.start)
        return self.strength * view.first_move / (view.round - 1) * view.normal()


@dataclass(frozen=True)
class Random(Freeloader):
    """Sends uniform noise as long as the last global move."""

    name = "random"
    summary = "sends uniform noise as long as the last global move"

    strength: float = parameter(1.0, "factor of the noise")

    def forge(self, view: ClientView) -> Tensor:
        length = math.sqrt(3) * rms(view.last_move)
        return self.strength * (length or FIRST_RANDOM) * view.uniform()
