"""Optimizers of local training: how the gradients of a client's loss become steps.

A step of a method is ``x <- x - local_lr * o``. Each optimizer has one of two positions:

- *inner* (SGD): o is made of the method's ``direction``, so that momentum also accumulates the method's correction;
- *outer* (Adam, AdamW): the gradient is transformed first, and o is the method's ``direction`` for the result.

Whatever belongs to the loss, clipping and coupled weight decay, is applied to the gradient before either. All
functions are pure, and a vector may have a leading client axis. An optimizer starts each round without any state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""What an optimizer carries from one step of a round to the next; empty before the first."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's decay rates and the number that avoids a division by zero, as in torch."""


@dataclass(frozen=True)
class LocalOptimizer:
    """The base of the optimizers, which treats the gradient of the loss as all of them do."""

    weight_decay: float = 0.0
    """λ, weight of the decay towards zero of all trainable parameters."""
    clip_norm: float | None = None
    """Maximum norm of the gradient of the loss in a step."""

    transforms_gradients: ClassVar[bool] = False
    """Whether the optimizer is outer: then a step may contain only one gradient, since each changes its state."""

    def clip(self, gradient: Tensor) -> Tensor:
        """Return the gradient of the loss, scaled down to at most ``clip_norm``, for each client on its own."""
        if self.clip_norm is None:
            return gradient
        norms: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
        return gradient * (self.clip_norm / norms).clamp(max=1)

    def add_decay(self, gradient: Tensor, x: Tensor) -> Tensor:
        """Return the gradient at ``x`` with that of the penalty λ/2 |x|², which counts as a part of the loss."""
        return gradient.add(x, alpha=self.weight_decay) if self.weight_decay else gradient

    def transform(self, gradient: Tensor, x: Tensor, state: State, number: int) -> tuple[Tensor, State]:
        """Return what a method sees as its gradient, and the new state; an inner optimizer changes nothing.

        Parameters
        ----------
        gradient
            The clipped gradient at ``x``, with coupled weight decay.
        x
            The point of the gradient.
        state
            The state after the previous gradient of the round.
        number
            Number of the gradient in the round, from 1.
        """
        return gradient, state

    def descend(self, direction: Tensor, state: State) -> tuple[Tensor, State]:
        """Return o, given a method's direction, and the new state; an outer optimizer changes nothing."""
        return direction, state

    def effective_steps(self, steps: int) -> float:
        """Return A, the sum of the coefficients of the directions in the update of a round, U = local_lr * sum a_j d_j.

        U / (local_lr * A) is the weighted mean of the directions. Of plain SGD and of outer optimizers, A is ``steps``.
        """
        return steps


@dataclass(frozen=True)
class Sgd(LocalOptimizer):
    """SGD as in torch: v <- ρv + d, and o = v (heavy ball) or o = d + ρv (Nesterov)."""

    momentum: float = 0.0
    """ρ, fraction of v that is kept in each step."""
    nesterov: bool = False

    def descend(self, direction: Tensor, state: State) -> tuple[Tensor, State]:
        if self.momentum == 0:
            return direction, state
        velocity = direction.add(state[0], alpha=self.momentum) if state else direction.clone()
        return direction.add(velocity, alpha=self.momentum) if self.nesterov else velocity, (velocity,)

    def effective_steps(self, steps: int) -> float:
        return _effective_steps(self.momentum, self.nesterov, steps) if self.momentum else steps


PLAIN_SGD = Sgd()


@lru_cache(maxsize=4096)
def _effective_steps(momentum: float, nesterov: bool, steps: int) -> float:
    """Sum the coefficients step by step, which is exact for every momentum.

    In closed form A = (K - ρ(1 - ρ^K) / (1 - ρ)) / (1 - ρ) for heavy ball and K + ρA for Nesterov, which loses all
    digits as ρ approaches 1.

    >>> _effective_steps(0.5, False, 3)  # 1 + 1.5 + 1.75
    4.25
    >>> _effective_steps(0.5, True, 3)
    5.125
    """
    velocity = heavy_ball = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1
        heavy_ball += velocity
    return steps + momentum * heavy_ball if nesterov else heavy_ball


@dataclass(frozen=True)
class Adam(LocalOptimizer):
    """Adam as in torch, with bias correction: o = m̂ / (√v̂ + ε)."""

    transforms_gradients = True

    def transform(self, gradient: Tensor, x: Tensor, state: State, number: int) -> tuple[Tensor, State]:
        first, second = BETAS
        mean, square = state or (torch.zeros_like(gradient), torch.zeros_like(gradient))
        mean = mean.lerp(gradient, 1 - first)
        square = (second * square).addcmul(gradient, gradient, value=1 - second)
        root = (square.sqrt() / math.sqrt(1 - second**number)).add_(EPSILON)
        return (mean / (1 - first**number)).div_(root), (mean, square)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: λx is added to o, and is not a part of the loss."""

    def add_decay(self, gradient: Tensor, x: Tensor) -> Tensor:
        return gradient

    def transform(self, gradient: Tensor, x: Tensor, state: State, number: int) -> tuple[Tensor, State]:
        transformed, state = super().transform(gradient, x, state, number)
        return transformed.add_(x, alpha=self.weight_decay), state


OPTIMIZERS: dict[str, type[LocalOptimizer]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}
"""The optimizers by name."""
