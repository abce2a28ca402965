"""What moved a client in a round: its own gradients, and the correction that its method added to them.

A client moves from w, the global model, to x_K. Its *gradients* account for the sum of the steps that the optimizer
makes of them, and its *correction* for the rest: whatever ``direction`` returns besides the gradient at the current
point, and the distance between w and the starting point x_0 of a method that looks ahead.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.client import ClientRunner
from fedtaco.cohort import ClientJob, Instructions
from fedtaco.device import CPU
from fedtaco.local_optimizer import LocalOptimizer, State
from fedtaco.methods import LocalContext, Method, NamedTensors


@dataclass(frozen=True)
class Trajectory:
    """The move of a client from the global model w; both vectors are subtracted from w, as an upload is."""

    gradients: Tensor
    """The part of the client's own gradients."""
    correction: Tensor
    """The part of the correction; exactly zero for FedAvg."""
    withheld: Tensor
    """What the client takes out of its update before it is uploaded; zero for most methods."""
    mean_square_distance: float
    """Mean over the steps of |w - x|², each before its step."""


def trace_client(
    runner: ClientRunner, method: Method, instructions: Instructions, job: ClientJob, weights: Tensor
) -> Trajectory:
    """Repeat the training of a client, with the same batches, and return what moved it.

    Parameters
    ----------
    runner, method, instructions, job
        As the client was trained.
    weights
        The global model w before the round.
    """
    traced = _TracedMethod(method, weights.to(runner.model.device).double(), runner.config.constants.optimizer)
    runner.run(traced, instructions, job)
    local_lr = runner.config.constants.in_round(instructions.round).local_lr
    look_ahead = weights.double() - instructions.broadcast.start.double()
    return Trajectory(
        local_lr * traced.by_gradients.total.to(CPU),
        local_lr * traced.by_correction.total.to(CPU) + look_ahead,
        traced.withheld.to(CPU),
        float(traced.squares / job.steps),
    )


class _Steps:
    """The sum of the steps that an optimizer makes of a sequence of directions."""

    def __init__(self, optimizer: LocalOptimizer, like: Tensor) -> None:
        self.optimizer, self.total = optimizer, torch.zeros_like(like)
        self.state: State = ()

    def add(self, direction: Tensor) -> None:
        step, self.state = self.optimizer.descend(direction, self.state)
        self.total += step


class _TracedMethod(Method):
    """A method that behaves as another one and notes the gradients and directions of its steps, in float64."""

    name = "traced"
    summary = "notes the gradients and directions of another method"

    def __init__(self, method: Method, weights: Tensor, optimizer: LocalOptimizer) -> None:
        super().__init__()
        self.method, self.weights = method, weights
        self.by_gradients, self.by_correction = (_Steps(optimizer, like=weights) for _ in range(2))
        self.withheld = torch.zeros_like(weights)
        self.squares = torch.zeros((), dtype=torch.float64, device=weights.device)

    def correction(self, local: LocalContext) -> Tensor | None:
        return self.method.correction(local)

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        self.squares += (self.weights - x).square().sum()
        original, seen = local.gradient, list[Tensor]()

        def gradient(point: Tensor) -> Tensor:
            value = original(point)
            if not seen:  # the first gradient of a step is the one at the current point
                seen.append(value.to(torch.float64, copy=True))  # a method may change it in place
            return value

        local.gradient = gradient
        direction = self.method.direction(x, local)
        local.gradient = original
        own = seen[0] if seen else torch.zeros_like(self.weights)
        self.by_gradients.add(own)
        self.by_correction.add(direction.double() - own)
        return direction

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        upload, memory = self.method.finish(update, local)
        self.withheld = (update - upload["update"]).double()
        return upload, memory
