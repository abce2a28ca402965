"""The base class of all methods: a method is FedAvg with a few hooks overridden (paper, Algorithm 1).

:class:`Method` is all that an everyday method needs. ``hook_arguments.py`` defines what its hooks receive, and
``further_hooks.py`` the hooks for compression, detectors, surveys and Flower, which most methods leave as they are.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtaco.methods.constants import Constants
from fedtaco.methods.cost import Cost
from fedtaco.methods.further_hooks import FurtherHooks
from fedtaco.methods.hook_arguments import Broadcast, Expulsion, LocalContext, NamedTensors, ServerState, Uploads

__all__ = ["Broadcast", "Expulsion", "LocalContext", "Method", "NamedTensors", "ServerState", "Uploads"]


@dataclass(frozen=True)
class Method(FurtherHooks):
    """Base class of all methods; it behaves as FedAvg, and a subclass overrides the hooks that differ.

    A subclass is a frozen dataclass. Its fields are the hyper-parameters, made with :func:`fedtaco.parameter`, and its
    class attributes are ``name``, ``summary`` (what the method changes in FedAvg) and ``cost``. An indented paragraph
    of its docstring states the formula; ``fedtaco methods NAME`` prints it.

    A round calls the hooks in the order in which they stand here. Client hooks are elementwise arithmetic, so that a
    vector may have a leading client axis: the same code serves one client ``(d,)`` and a stack of clients ``(n, d)``;
    per-client scalars are then ``(n, 1)`` columns. Only named tensors are kept between rounds or sent over a network.
    """

    cost: ClassVar[Cost] = Cost()

    # Before the first round

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        """Return the server's memory at the start of a run."""
        return {}

    def client_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        """Return a client's memory before its first round; a number is a tensor of shape (1,)."""
        return {}

    # The server, before the clients work

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        """Return what the clients in ``cohort`` receive, and the point x_0 where they start."""
        return Broadcast(server.weights)

    # A client

    def correction(self, local: LocalContext) -> Tensor | None:
        """Return a vector to add to every gradient of the round, or ``None``; it is kept in ``local.correction``."""
        return None

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        """Return the direction of the step ``x <- x - local_lr * direction``; ``x`` itself must not be changed."""
        gradient = local.gradient(x)
        return gradient if local.correction is None else gradient.add_(local.correction)

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        """Return the upload and the client's complete new memory; ``update`` is U_i = x_0 - x_K."""
        upload = {"update": update}
        return upload, {**local.memory, **self.mirror(upload, local)}

    # The server, after the clients have worked

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        """Return the aggregation weights p_i, which sum to 1; if all of them are 0, the model stays as it was.

        If those of a formula have another sum, return them normalised, and multiply by the sum in ``aggregate``.
        """
        return uploads.shares

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return the state with the weights w - relaxation * sum p_i U_i.

        At the default server rate, these are the weighted mean of the client models.
        """
        return server.moved(uploads.relaxation * uploads.mean_update)
