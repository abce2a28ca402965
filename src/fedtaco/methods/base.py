"""The contract: a method is FedAvg with a few things changed (paper, Algorithm 1).

One round, and the hook a method overrides to change a part of it:

======================  ============================================================================
``broadcast``           server: what the cohort is sent, and the point ``x_0`` where clients start
``correction``          client: a vector added to every gradient of the round
``direction``           client: what one step descends along, ``x <- x - local_lr * direction``
``finish``              client: what is uploaded of ``U_i = x_0 - x_K``, and what is remembered
``decode``              server: back to full vectors, where ``finish`` compressed them
``weigh``               server: the aggregation weights p_i
``aggregate``           server: the new weights and memory
``remove_clients``      server: the state once clients are expelled
``mirror``              server: the memory of a remote client, derived from its upload
``output``              server: the model the method returns, where that is not the weights
======================  ============================================================================

Client hooks are elementwise arithmetic, so that a vector may have a leading client axis: the same
code serves one client ``(d,)`` and a stack of clients ``(n, d)``; per-client scalars are then ``(n, 1)``
columns. Nothing but plain data (named tensors) outlives a round or crosses a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.methods.geometry import Geometry, geometry_of, weighted_sum
from fedtaco.parameters import Configurable

NamedTensors = Mapping[str, Tensor]
"""Memory of a server or client, or the content of a message."""


@dataclass(frozen=True)
class Constants:
    """The constants of a run that formulas name: N, T, K, and the learning rates of clients and server."""

    clients: int
    """Number of clients N; in ``Uploads``, of those not expelled before the round."""
    rounds: int
    local_steps: int
    local_lr: float
    server_lr: float | None = None
    """``None`` stands for the paper's K * local_lr: the server takes the clients' mean update."""


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
    """What the cohort receives: vectors that all share, and named scalars with one entry per client."""

    start: Tensor
    vectors: NamedTensors = field(default_factory=dict)
    scalars: NamedTensors = field(default_factory=dict)


@dataclass
class LocalContext:
    """What the client hooks of a method receive, for one client or for a stack of clients."""

    constants: Constants
    start: Tensor
    received: NamedTensors
    """The vectors of the broadcast, and its scalars for this client."""
    memory: NamedTensors
    """Memory of this client before the round."""
    steps: int | Tensor
    """Number of steps of this client (K_i)."""
    gradient: Callable[[Tensor], Tensor]
    """Gradient of the loss at a point, on the batch of the current step; a new tensor each time."""
    full_gradient: Callable[[Tensor], Tensor]
    """Gradient of the loss at a point, over all samples of the client."""
    step: int = 0
    correction: Tensor | None = None
    carry: dict[str, Tensor] = field(default_factory=dict)
    """Tensors that a method passes from one step to the next."""

    def per_step(self, displacement: Tensor) -> Tensor:
        """Convert a displacement to gradient units: divide by K_i * local_lr (zero at a rate of zero)."""
        return _in_gradient_units(displacement, self.steps, self.constants.local_lr)


@dataclass
class Uploads:
    """The usable uploads of a round, one row per client."""

    constants: Constants
    clients: Tensor
    vectors: NamedTensors
    """``update`` holds U_i as rows (n, d); further names as the method's ``finish`` gave them."""
    steps: Tensor
    shares: Tensor
    """Weights by the run's weighting, uniform or by samples; they sum to 1."""
    aggregation_weights: Tensor = field(default_factory=lambda: torch.empty(0))
    """The weights p_i that the method's ``weigh`` chose."""

    @cached_property
    def geometry(self) -> Geometry:
        return geometry_of(self.vectors["update"])

    @cached_property
    def mean_update(self) -> Tensor:
        """The weighted mean displacement, sum p_i U_i."""
        return self.average("update")

    def average(self, name: str) -> Tensor:
        """Return the weighted mean of the rows of a named matrix."""
        return weighted_sum(self.aggregation_weights, self.vectors[name])

    @property
    def effective_steps(self) -> float:
        """The weighted mean of the K_i; exactly K where all are equal."""
        fewest = self.steps.min()
        return float(fewest + self.aggregation_weights @ (self.steps - fewest).double())

    @property
    def relaxation(self) -> float:
        """server_lr / (K * local_lr): the fraction of the mean update that the server takes, 1 by default."""
        constants = self.constants
        if constants.server_lr is None or constants.local_lr == 0:
            return 1.0
        return constants.server_lr / (self.effective_steps * constants.local_lr)

    def per_step(self, displacement: Tensor) -> Tensor:
        """Convert a displacement to gradient units, the scale of the paper's global direction."""
        return _in_gradient_units(displacement, self.effective_steps, self.constants.local_lr)

    def weights_proportional_to(self, merits: Tensor) -> Tensor:
        """Return weights in proportion to share times merit; if all merits are 0, the shares of non-zero uploads."""
        for candidate in (self.shares * merits, self.shares * (self.geometry.norms > 0)):
            if candidate.sum() > 0:
                return candidate / candidate.sum()
        return self.shares


@dataclass(frozen=True)
class Expulsion:
    """Clients that the detector expels after a round."""

    clients: Tensor
    members: int
    """Number of clients before the expulsion."""
    memories: Mapping[int, NamedTensors]
    """Memory of each expelled client, as far as the server knows it (see ``Method.mirror``)."""


@dataclass(frozen=True)
class Cost:
    """What a method costs a client in a round; the contract test measures it."""

    gradients: int = 1
    """Gradient evaluations per step."""
    gradients_saved: int = 0
    """Gradient evaluations that a round needs less than that, such as in its first step."""
    full_passes: int = 0
    """Gradients over all the client's samples, per round."""
    vector_ops: int = 0
    """Further operations on whole vectors per step."""
    memory: int = 0
    """Vectors the client keeps between rounds."""
    down: int = 1
    """Vectors received per round."""
    up: float = 1
    """Vectors sent per round."""
    scalars_down: int = 0
    """Single numbers received per round."""


@dataclass(frozen=True)
class Method(Configurable):
    """FedAvg, and the base of every method: override what differs.

    Subclasses are frozen dataclasses whose fields are the hyper-parameters, made with
    :func:`fedtaco.parameter`; ``summary`` says what the method changes in FedAvg.
    """

    kind: ClassVar[str] = "method"
    cost: ClassVar[Cost] = Cost()
    surveys: ClassVar[bool] = False
    """Whether a round has a first phase, ``survey`` on the clients and ``absorb`` on the server, before training."""
    inspectable: ClassVar[bool] = True
    """Whether a detector can judge single uploads; not if they are masked or noisy on purpose."""

    # The server, before the clients work

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        """Return the server's memory at the start of a run."""
        return {}

    def client_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        """Return a client's memory before its first round; a number is a tensor of shape (1,)."""
        return {}

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        """Return what the clients in ``cohort`` receive; scalars in the order of the cohort."""
        return Broadcast(server.weights)

    # A client

    def survey(self, local: LocalContext) -> NamedTensors:
        """Return a client's answer in the survey phase, in which it takes no step."""
        raise TypeError(f"{type(self).__name__} surveys its clients and must define survey()")

    def correction(self, local: LocalContext) -> Tensor | None:
        """Return a vector that is added to every gradient of the round; it is kept in ``local.correction``."""
        return None

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        """Return the direction that the step at ``x`` descends along; ``x`` itself must not be changed."""
        gradient = local.gradient(x)
        return gradient if local.correction is None else gradient.add_(local.correction)

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        """Return the upload and the client's new memory; ``update`` is U_i = x_0 - x_K."""
        return {"update": update}, local.memory

    # The server, after the clients worked

    def absorb(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return the server's state with the answers of the survey phase."""
        raise TypeError(f"{type(self).__name__} surveys its clients and must define absorb()")

    def decode(self, upload: NamedTensors) -> NamedTensors:
        """Return one client's upload as full vectors; only a method that compresses overrides it."""
        return upload

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        """Return the aggregation weights p_i, which sum to 1."""
        return uploads.shares

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return w - relaxation * sum p_i U_i; at the default server rate, the weighted mean of client models."""
        return server.moved(uploads.relaxation * uploads.mean_update)

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Return the server's state without the expelled clients."""
        return server

    def mirror(self, memory: NamedTensors, upload: NamedTensors) -> NamedTensors:
        """Return a client's memory after an upload, as a remote server can derive it for ``remove_clients``."""
        return memory

    def output(self, server: ServerState) -> Tensor:
        """Return the weights of the model that the method returns at the end."""
        return server.weights


def _in_gradient_units(displacement: Tensor, steps: int | float | Tensor, local_lr: float) -> Tensor:
    if local_lr == 0:
        return torch.zeros_like(displacement)
    return displacement / (steps * local_lr)
