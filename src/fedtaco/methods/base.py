"""The base class of all methods: a method is FedAvg with a few hooks overridden (paper, Algorithm 1).

The hooks, in the order in which a round calls them:

======================  ============================================================================
``survey``, ``absorb``  client, server: a first phase without training, if ``surveys`` is true
``broadcast``           server: what the clients receive, and the point ``x_0`` where they start
``correction``          client: a vector added to every gradient of the round
``direction``           client: what one step descends along, ``x <- x - local_lr * direction``
``finish``              client: the upload, given ``U_i = x_0 - x_K``, and the client's new memory
``mirror``              client and server: what of the client's new memory follows from the upload
``weigh``               server: the aggregation weights p_i
``aggregate``           server: the new weights and memory
``remove_clients``      server: the state without the clients that the detector expels
``output``              server: the weights of the model that the method returns after the last round
======================  ============================================================================

Between ``finish`` and ``weigh``, a codec may compress the upload, and the server may clip it. What the server then has
is *the upload as it is used*, and both sides apply ``mirror`` to it: no memory that the server takes account of may
depend on anything else of the client's update.

Client hooks are elementwise arithmetic, so that a vector may have a leading client axis: the same
code serves one client ``(d,)`` and a stack of clients ``(n, d)``; per-client scalars are then ``(n, 1)``
columns. Only plain data (named tensors) is kept between rounds or sent over a network.

Aggregation weights sum to 1. If those of a formula do not, ``weigh`` returns them normalised, and ``aggregate``
multiplies by their sum. If all of them are 0, nothing is aggregated, and the model stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.geometry import Geometry, geometry_of, weighted_sum
from fedtaco.parameters import Configurable

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
    vectors: NamedTensors
    """What ``finish`` (or ``survey``) returned, by name, one row per client; ``update`` holds the U_i, (n, d)."""
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
        return geometry_of(self.vectors["update"])

    @cached_property
    def mean_update(self) -> Tensor:
        """The weighted mean displacement, sum p_i U_i."""
        return self.average("update")

    def average(self, name: str) -> Tensor:
        """Return the weighted mean of the rows of a named matrix."""
        return weighted_sum(self.aggregation_weights, self.vectors[name])

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
        return weighted_sum(rates, self.vectors["update"])

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


@dataclass(frozen=True)
class Method(Configurable):
    """Base class of all methods; it behaves as FedAvg, and a subclass overrides the hooks that differ.

    Subclasses are frozen dataclasses whose fields are the hyper-parameters, made with
    :func:`fedtaco.parameter`; ``summary`` says what the method changes in FedAvg. The docstring of a subclass states
    its formula, in an indented paragraph; ``fedtaco methods NAME`` prints it.
    """

    kind: ClassVar[str] = "method"
    category: ClassVar[str] = "other"
    """What kind of change the method makes, such as ``momentum``; ``fedtaco methods`` groups by it."""
    reference: ClassVar[str] = ""
    """The publication that describes the method."""
    unequal_steps: ClassVar[str | None] = (
        "A client that takes more steps moves further and counts for more in the mean."
    )
    """What happens if clients take different numbers of steps K_i, in a sentence; ``None`` if this is refused."""
    needs_all_weights: ClassVar[bool] = False
    """Whether ``weigh`` uses ``Uploads.coverage``, for which the server must know the weights of absent clients."""
    cost: ClassVar[Cost] = Cost()
    surveys: ClassVar[bool] = False
    """Whether a round has a first phase, ``survey`` on the clients and ``absorb`` on the server, before training."""
    needs_all_clients: ClassVar[bool] = False
    """Whether all clients must take part in every round."""
    inspectable: ClassVar[bool] = True
    """Whether a detector can judge single uploads; not if they are masked or noisy on purpose."""
    unbounded: ClassVar[frozenset[str]] = frozenset()
    """Names of uploaded vectors whose norms are not bounded, because they vary too much between honest clients."""
    needs_whole_uploads: ClassVar[bool] = False
    """Whether the method cannot use uploads of which a codec sends a part and the rest later."""
    estimates_from: ClassVar[str | None] = None
    """Name of the uploaded vector from which a client's memory takes an estimate of its gradient that corrects its next
    steps, such as Scaffold's c_i. What a codec leaves out of it appears again in the next upload, so that this vector
    needs no error feedback; with it, the same would be sent twice, and runs diverge."""

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
        raise TypeError(f"{type(self).__name__} has surveys = True and must define survey()")

    def correction(self, local: LocalContext) -> Tensor | None:
        """Return a vector to add to every gradient of the round, or ``None``; it is kept in ``local.correction``."""
        return None

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        """Return the direction that the step at ``x`` descends along; ``x`` itself must not be changed."""
        gradient = local.gradient(x)
        return gradient if local.correction is None else gradient.add_(local.correction)

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        """Return the upload and the client's new memory, all of it; ``update`` is x_0 - x_K."""
        upload = {"update": update}
        return upload, {**local.memory, **self.mirror(upload, local)}

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        """Return those entries of the client's new memory that follow from the upload as it is used.

        They replace what ``finish`` returned if the upload was compressed or clipped. ``local`` has no gradients, no
        correction and no ``carry``, since the server calls it, too. A method must override it if its client memory
        depends on the update.
        """
        return {}

    # The server, after the clients have worked

    def absorb(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return the server's state after the survey phase; ``uploads`` holds the clients' answers."""
        raise TypeError(f"{type(self).__name__} has surveys = True and must define absorb()")

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        """Return the aggregation weights p_i, which sum to 1 or are all 0."""
        return uploads.shares

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return the state with the weights w - relaxation * sum p_i U_i.

        At the default server rate, these are the weighted mean of the client models.
        """
        return server.moved(uploads.relaxation * uploads.mean_update)

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Return the server's state without the expelled clients."""
        return server

    def output(self, server: ServerState) -> Tensor:
        """Return the weights of the model that the method returns at the end."""
        return server.weights


def _in_gradient_units(displacement: Tensor, steps: float, local_lr: float) -> Tensor:
    if local_lr == 0:
        return torch.zeros_like(displacement)
    return displacement / (steps * local_lr)
