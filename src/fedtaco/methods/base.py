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
``without``             server: the state once clients are expelled
``mirror``              server: what a client far away remembers, told from its upload
``output``              server: the model the method returns, where that is not the weights
======================  ============================================================================

Client hooks are elementwise arithmetic, so that a vector may have a leading client axis: the same
code serves one client ``(d,)`` and a stack of them ``(n, d)``, whose per-client numbers are then
``(n, 1)`` columns. Nothing but plain data (named tensors) outlives a round or crosses a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.methods.geometry import Geometry, geometry_of, weighted_sum
from fedtaco.methods.parameters import check_parameters

Memory = Mapping[str, Tensor]
"""Named tensors: what a server or client remembers, and what a message holds."""


@dataclass(frozen=True)
class Setting:
    """The constants of a run that formulas name: N, T, K, the local and the server rate."""

    clients: int
    """All clients; in a round's ``Uploads`` those that were not expelled before it."""
    rounds: int
    local_steps: int
    local_lr: float
    server_lr: float | None = None
    """``None`` is the paper's K * local_lr, with which the server takes the clients' mean move."""


@dataclass(frozen=True)
class Server:
    """What the server keeps from round to round."""

    weights: Tensor
    memory: Memory = field(default_factory=dict)

    def moved(self, displacement: Tensor) -> Server:
        return replace(self, weights=self.weights - displacement)

    def remembering(self, **memory: Tensor) -> Server:
        return replace(self, memory={**self.memory, **memory})


@dataclass(frozen=True)
class Broadcast:
    """What the cohort is sent: shared vectors, and one number per client and name."""

    start: Tensor
    vectors: Memory = field(default_factory=dict)
    scalars: Memory = field(default_factory=dict)


@dataclass
class Local:
    """What one client, or a stack of clients, has at hand during a round."""

    setting: Setting
    start: Tensor
    received: Memory
    """The broadcast's vectors, and its numbers for this client."""
    memory: Memory
    """What this client remembered when the round began."""
    steps: int | Tensor
    """How many steps this client does (K_i)."""
    gradient: Callable[[Tensor], Tensor]
    """Gradient of the plain loss at any point on the current step's batch; a fresh tensor each time."""
    full_gradient: Callable[[Tensor], Tensor]
    """Gradient over all the client's samples."""
    step: int = 0
    correction: Tensor | None = None
    carry: dict[str, Tensor] = field(default_factory=dict)
    """What a method hands from one step to the next."""

    def per_step(self, displacement: Tensor) -> Tensor:
        """A displacement in gradient units: divided by K_i * local_lr (zero at a rate of zero)."""
        return _in_gradient_units(displacement, self.steps, self.setting.local_lr)


@dataclass
class Uploads:
    """The valid uploads of a round, a row per client."""

    setting: Setting
    clients: Tensor
    vectors: Memory
    """``update`` holds U_i as rows (n, d); further names as the method's ``finish`` gave them."""
    steps: Tensor
    shares: Tensor
    """What each client's upload counts by the run's weighting, uniform or by samples; sums to 1."""
    weights: Tensor = field(default_factory=lambda: torch.empty(0))
    """The aggregation weights p_i that the method's ``weigh`` chose."""

    def only(self, rows: list[int]) -> Uploads:
        """Some of the uploads, in rising order; they are moved together in the memory that all were in."""
        for matrix in self.vectors.values():
            for place, row in enumerate(rows):
                if place != row:
                    matrix[place].copy_(matrix[row])
        shares = self.shares[rows]
        return Uploads(
            setting=self.setting,
            clients=self.clients[rows],
            vectors={name: matrix[: len(rows)] for name, matrix in self.vectors.items()},
            steps=self.steps[rows],
            shares=shares / shares.sum(),
        )

    @cached_property
    def geometry(self) -> Geometry:
        return geometry_of(self.vectors["update"])

    @cached_property
    def move(self) -> Tensor:
        """The weighted mean displacement, sum p_i U_i."""
        return self.average("update")

    def average(self, name: str) -> Tensor:
        return weighted_sum(self.weights, self.vectors[name])

    @property
    def effective_steps(self) -> float:
        """The weighted mean of the K_i; exactly K where all are equal."""
        fewest = self.steps.min()
        return float(fewest + self.weights @ (self.steps - fewest).double())

    @property
    def relaxation(self) -> float:
        """server_lr / (K * local_lr): the part of the mean move the server takes, 1 by default."""
        setting = self.setting
        if setting.server_lr is None or setting.local_lr == 0:
            return 1.0
        return setting.server_lr / (self.effective_steps * setting.local_lr)

    def per_step(self, displacement: Tensor) -> Tensor:
        """A displacement in gradient units, the scale of the paper's global direction."""
        return _in_gradient_units(displacement, self.effective_steps, self.setting.local_lr)

    def weights_by(self, merits: Tensor) -> Tensor:
        """Weights in proportion to share times merit; the shares of the non-zero uploads if no merit is left."""
        for candidate in (self.shares * merits, self.shares * (self.geometry.norms > 0)):
            if candidate.sum() > 0:
                return candidate / candidate.sum()
        return self.shares


@dataclass(frozen=True)
class Departure:
    """Clients that are expelled."""

    clients: Tensor
    members: int
    """How many clients there were, those that leave among them."""
    memories: Mapping[int, Memory]
    """What each that leaves remembers; a server far away has to follow it in the uploads."""


@dataclass(frozen=True)
class Cost:
    """What a method costs a client in a round, in units of FedAvg's; the contract test measures it."""

    gradients: int = 1
    """Gradient evaluations per step."""
    spared: int = 0
    """Evaluations of those that a round does without."""
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
class Method:
    """FedAvg, and the base of every method: override what differs.

    Subclasses are frozen dataclasses whose fields are the hyper-parameters, made with
    :func:`fedtaco.methods.parameter`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """What the method changes in FedAvg, in a few words."""
    cost: ClassVar[Cost] = Cost()
    surveys: ClassVar[bool] = False
    """Whether a round begins with a phase of questions: ``survey`` on clients, ``absorb`` on the server."""
    inspectable: ClassVar[bool] = True
    """Whether single uploads mean something; where they are masked or noisy on purpose no detector can judge them."""

    def __post_init__(self) -> None:
        check_method_class(type(self))
        check_parameters(self, self.name)

    # The server, before the clients work

    def server_memory(self, weights: Tensor, setting: Setting) -> Memory:
        """What the server remembers at the start of a run."""
        return {}

    def client_memory(self, weights: Tensor, setting: Setting) -> Memory:
        """What a client remembers before its first round; a number is a tensor of shape (1,)."""
        return {}

    def broadcast(self, server: Server, cohort: Tensor) -> Broadcast:
        """What the clients numbered in ``cohort`` are sent; per-client numbers in the cohort's order."""
        return Broadcast(server.weights)

    # A client

    def survey(self, local: Local) -> Memory:
        """What a client answers in the survey phase, where it does no step."""
        raise TypeError(f"{type(self).__name__} surveys its clients and must define survey()")

    def correction(self, local: Local) -> Tensor | None:
        """A vector added to every gradient of the round: computed once, kept in ``local.correction``."""
        return None

    def direction(self, x: Tensor, local: Local) -> Tensor:
        """What the step at ``x`` descends along; ``x`` itself must not be changed."""
        gradient = local.gradient(x)
        return gradient if local.correction is None else gradient.add_(local.correction)

    def finish(self, update: Tensor, local: Local) -> tuple[Memory, Memory]:
        """The upload and the client's new memory, after the last step moved it by ``update``."""
        return {"update": update}, local.memory

    # The server, after the clients worked

    def absorb(self, server: Server, uploads: Uploads) -> Server:
        """Take in the answers of the survey phase."""
        raise TypeError(f"{type(self).__name__} surveys its clients and must define absorb()")

    def decode(self, upload: Memory) -> Memory:
        """One client's upload as full vectors; only a method that compresses needs it."""
        return upload

    def weigh(self, server: Server, uploads: Uploads) -> Tensor:
        """Aggregation weights p_i, which sum to 1."""
        return uploads.shares

    def aggregate(self, server: Server, uploads: Uploads) -> Server:
        """w <- w - relaxation * sum p_i U_i; with the default server rate the weighted mean of client models."""
        return server.moved(uploads.relaxation * uploads.move)

    def without(self, server: Server, departure: Departure) -> Server:
        """The server's state once some clients are gone for good."""
        return server

    def mirror(self, memory: Memory, upload: Memory) -> Memory:
        """What a client remembers after an upload, as a server far away can tell; only ``without`` makes use of it."""
        return memory

    def output(self, server: Server) -> Tensor:
        """The weights of the model that the method returns."""
        return server.weights


def check_method_class(kind: type[Method]) -> None:
    """Refuse a class that could not be named, configured or recorded."""
    for attribute in ("name", "summary"):
        if not hasattr(kind, attribute):
            raise InvalidInput(f"The method {kind.__name__} needs a class attribute '{attribute}'.")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", kind.name):
        raise InvalidInput(f"The method's name is '{kind.name}'; write it in small letters, digits and hyphens.")
    if any(isinstance(value, Field) for value in vars(kind).values()):
        raise InvalidInput(f"The method {kind.__name__} has parameters: decorate it with @dataclass(frozen=True).")
    plain = [own.name for own in fields(kind) if "domain" not in own.metadata]
    if plain:
        raise InvalidInput(
            f"The field {plain[0]} of the method {kind.__name__} must be made with parameter(default, meaning), "
            "so that it is checked, set and recorded."
        )


def _in_gradient_units(displacement: Tensor, steps: int | float | Tensor, local_lr: float) -> Tensor:
    if local_lr == 0:
        return torch.zeros_like(displacement)
    return displacement / (steps * local_lr)
