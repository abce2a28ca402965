"""What a method may state and override beside its everyday hooks, grouped by the part of fedtaco that needs it.

Between ``finish`` and ``weigh``, a codec may compress the upload, and the server may clip it. What the server then has
is *the upload as it is used*. Client and server both apply ``mirror`` to it: no memory that the server takes account of
may depend on anything else of the client's update.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedtaco.methods.hook_arguments import Expulsion, LocalContext, NamedTensors, ServerState, Uploads
from fedtaco.parameters import Configurable


@dataclass(frozen=True)
class FurtherHooks(Configurable):
    """The hooks and class attributes of methods that only special cases override."""

    kind: ClassVar[str] = "method"

    # What `fedtaco methods` prints

    category: ClassVar[str] = "other"
    """What kind of change the method makes, such as ``momentum``; ``fedtaco methods`` groups by it."""
    reference: ClassVar[str] = ""
    """The publication that describes the method."""

    # Clients that are absent or take different numbers of steps

    unequal_steps: ClassVar[str | None] = (
        "A client that takes more steps moves further and counts for more in the mean."
    )
    """What happens if clients take different numbers of steps K_i, in a sentence; ``None`` if this is refused."""
    needs_all_clients: ClassVar[bool] = False
    """Whether all clients must take part in every round."""
    needs_all_weights: ClassVar[bool] = False
    """Whether ``weigh`` uses ``Uploads.coverage``. Weights by samples are then refused on Flower, where the server does
    not know the weights of absent clients."""

    # Compression, and Flower, where the memories of clients stay on the nodes

    needs_whole_uploads: ClassVar[bool] = False
    """Whether the method cannot use uploads of which a codec sends a part and the rest later."""
    estimates_from: ClassVar[str | None] = None
    """Name of the uploaded vector from which a client's memory takes an estimate of its gradient that corrects its next
    steps, such as Scaffold's c_i. What a codec leaves out of it appears again in the next upload, so that this vector
    needs no error feedback; with it, the same would be sent twice, and runs diverge."""

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        """Return those entries of the client's new memory that follow from the upload as it is used.

        They replace what ``finish`` returned if the upload was compressed or clipped. ``local`` has no gradients, no
        correction and no ``carry``, since the server calls it, too. A method must override it if its client memory
        depends on the update.
        """
        return {}

    # Detectors

    inspectable: ClassVar[bool] = True
    """Whether a detector can judge single uploads; not if they are masked or noisy on purpose."""
    unbounded: ClassVar[frozenset[str]] = frozenset()
    """Names of uploaded vectors whose norms are not bounded, because they vary too much between honest clients."""

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Return the server's state without the clients that the detector expels."""
        return server

    # A survey: a first phase of each round, before the broadcast, in which clients take no step

    surveys: ClassVar[bool] = False
    """Whether a round has this phase."""

    def survey(self, local: LocalContext) -> NamedTensors:
        """Return a client's answer."""
        raise TypeError(f"{type(self).__name__} has surveys = True and must define survey()")

    def absorb(self, server: ServerState, uploads: Uploads) -> ServerState:
        """Return the server's state after the survey; ``uploads`` holds the clients' answers."""
        raise TypeError(f"{type(self).__name__} has surveys = True and must define absorb()")

    # The result of a run

    def output(self, server: ServerState) -> Tensor:
        """Return the weights of the model that the method returns after the last round."""
        return server.weights
