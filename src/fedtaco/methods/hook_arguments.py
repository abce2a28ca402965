"""What the hooks of a method receive: the server's state, what a client knows, and the uploads of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from fedtaco.methods.constants import Constants
from fedtaco.uploads import Geometry, UploadedVectors

NamedTensors = Mapping[str, Tensor]
"""Memory of a server or client, or the content of a message."""


@dataclass(frozen=True)
class ServerState:
    """What the server keeps between rounds: the global model's weights and the method's memory."""

    weights: Tensor
    memory: NamedTensors = field(default_factory=dict)

    def moved(self, displacement: Tensor) -> ServerState:
        """Return the state with ``displacement`` subtracted from the weights."""
        return replace(self, weights=self.weights - displacement)

    def with_memory(self, **memory: Tensor) -> ServerState:
        """Return the state with these entries of the memory replaced."""
        return replace(self, memory={**self.memory, **memory})


@dataclass(frozen=True)
class Broadcast:
    """What the cohort receives: vectors, the same for all clients, and named scalars with one entry per client."""

    start: Tensor
    """The point x_0 from which clients take their steps."""
    vectors: NamedTensors = field(default_factory=dict)
    scalars: NamedTensors = field(default_factory=dict)

    def received_by(self, row: int) -> NamedTensors:
        """Return the vectors, and the scalars of the client in this row of the cohort."""
        return {**self.vectors, **{name: column[row] for name, column in self.scalars.items()}}


@dataclass
class LocalContext:
    """What the client hooks of a method receive, for one client or for a stack of clients."""

    constants: Constants
    start: Tensor
    received: NamedTensors
    """The vectors of the broadcast, and its scalars for this client."""
    memory: NamedTensors
    """Memory of this client before the round."""
    steps: int
    """Number of steps of this client (K_i)."""
    gradient: Callable[[Tensor], Tensor]
    """Gradient of the loss at a point, on the batch of the current step; a new tensor each time. It is clipped and
    contains coupled weight decay, and Adam or AdamW has transformed it."""
    full_gradient: Callable[[Tensor], Tensor]
    """Gradient of the loss at a point, over all samples of the client. It contains coupled weight decay, but is neither
    clipped nor transformed."""
    step: int = 0
    """Number of the current step, from 0."""
    correction: Tensor | None = None
    """What the method's ``correction`` returned for this round."""
    carry: dict[str, Tensor] = field(default_factory=dict)
    """Tensors that a method passes from one step to the next."""

    def per_step(self, displacement: Tensor) -> Tensor:
        """Convert a displacement to gradient units: divide by A_i * local_lr (zero at a rate of zero)."""
        return _in_gradient_units(displacement, self._effective_steps, self.constants.local_lr)

    def over_all_steps(self, direction: Tensor) -> Tensor:
        """Return how far the client moves down if it descends along the same direction in each of its steps."""
        return self._effective_steps * self.constants.local_lr * direction

    @property
    def _effective_steps(self) -> float:
        return self.constants.optimizer.effective_steps(self.steps)


@dataclass
class Uploads:
    """The usable uploads of a round, one row per client."""

    constants: Constants
    clients: Tensor
    vectors: UploadedVectors
    """What ``finish`` (or ``survey``) returned, by name, one row per client; ``update`` holds the U_i."""
    steps: Tensor
    """Number of steps of each client (K_i)."""
    shares: Tensor
    """Weights given by the run's weighting, uniform or by number of samples; they sum to 1."""
    coverage: float = 1.0
    """Weight of these clients among all that are not expelled: 1 if all of them are here."""
    aggregation_weights: Tensor = field(default_factory=lambda: torch.empty(0))
    """The weights p_i that the method's ``weigh`` chose."""
    training_losses: Tensor = field(default_factory=lambda: torch.empty(0))
    """The mean loss over the local steps of each client, as it states it; NaN if unknown."""

    @cached_property
    def geometry(self) -> Geometry:
        """The norms and cosines of the updates."""
        return self.vectors.geometry()

    @cached_property
    def mean_update(self) -> Tensor:
        """The weighted mean displacement, sum p_i U_i."""
        return self.average("update")

    def average(self, name: str) -> Tensor:
        """Return the weighted mean of the vectors of this name."""
        return self.vectors.weighted_sum(self.aggregation_weights, name)

    @property
    def client_effective_steps(self) -> Tensor:
        """The optimizer's number of effective steps of each client (A_i); K_i for plain SGD."""
        optimizer = self.constants.optimizer
        return torch.tensor([optimizer.effective_steps(steps) for steps in self.steps.tolist()], dtype=torch.float64)

    @property
    def effective_steps(self) -> float:
        """The weighted mean of the A_i; exactly A where all are equal."""
        steps = self.client_effective_steps
        return float(steps.min() + self.aggregation_weights @ (steps - steps.min()))

    @property
    def relaxation(self) -> float:
        """server_lr / (A * local_lr): the factor by which the server scales the mean update, 1 by default."""
        return self.constants.relaxation(self.effective_steps)

    def per_step(self, displacement: Tensor) -> Tensor:
        """Convert a displacement to gradient units, the scale of the paper's global direction."""
        return _in_gradient_units(displacement, self.effective_steps, self.constants.local_lr)

    def sum_per_step(self) -> Tensor:
        """Return the sum of U_i / (K_i * local_lr): the updates in gradient units, each by its own client's steps."""
        steps, local_lr = self.client_effective_steps, self.constants.local_lr
        rates = 1 / (steps * local_lr) if local_lr else torch.zeros_like(steps)
        return self.vectors.weighted_sum(rates)

    def weights_proportional_to(self, merits: Tensor) -> Tensor:
        """Return weights that are proportional to share times merit and sum to 1.

        If all products are 0, the weights are proportional to the shares of the non-zero uploads; if all uploads are
        zero, they are the shares.
        """
        for candidate in (self.shares * merits, self.shares * (self.geometry.norms > 0)):
            if candidate.sum() > 0:
                return candidate / candidate.sum()
        return self.shares


@dataclass(frozen=True)
class Expulsion:
    """Clients that the detector expels after a round."""

    clients: Tensor
    members: int
    """Number of clients before the expulsion, without those expelled in earlier rounds."""
    memories: Mapping[int, NamedTensors]
    """Memory of each expelled client, as far as the server knows it (see ``Method.mirror``)."""


def _in_gradient_units(displacement: Tensor, steps: float, local_lr: float) -> Tensor:
    if local_lr == 0:
        return torch.zeros_like(displacement)
    return displacement / (steps * local_lr)
