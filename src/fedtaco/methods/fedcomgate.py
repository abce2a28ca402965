"""FedCOMGATE (Haddadpour et al., 2021, Algorithm 2): gradient tracking from compressed updates.

The paper's δ_i grows by the difference of the client's own direction and the mean of all directions of the round, which
the client learns only afterwards. So the client keeps the sum of its own directions, a_i, and the server sends A, the
mean of the a_i, with the next model: δ_i = a_i - A, and the δ_i sum to zero exactly. All of them are made of updates as
they are used, that is, after compression (``compress``).
"""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.averaged_memory import AveragedMemory
from fedtaco.methods.base import Broadcast, LocalContext, NamedTensors, ServerState, Uploads
from fedtaco.methods.cost import Cost


@dataclass(frozen=True)
class FedComGate(AveragedMemory):
    """Clients subtract from each gradient how far their own directions are from the mean of all.

        x   <- x - local_lr * (g - δ_i), where δ_i = a_i - A
        a_i <- a_i + U_i / (K_i local_lr)
        A   <- A + mean of U_i / (K_i local_lr)
        w   <- w - sum of p_i U_i

    All clients must take part in every round. Without compression and with uniform weights, this is Scaffold, step for
    step; it sends one vector instead of two.
    """

    name = "fedcomgate"
    summary = "subtracts from each gradient how far own directions are from the mean; made for compressed updates"
    category = "correction"
    reference = (
        "Haddadpour et al., Federated Learning with Compression: Unified Analysis and Sharp Guarantees, AISTATS 2021"
    )
    unequal_steps = "a_i divides U_i by the client's own K_i; in w, a client that takes more steps counts for more."
    cost = Cost(vector_ops=1, memory=1, down=2)
    averaged = ("directions",)
    estimates_from = "update"
    needs_all_clients = True

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"directions": server.memory["directions"]})

    def correction(self, local: LocalContext) -> Tensor:
        return local.received["directions"] - local.memory["directions"]

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        return {"directions": local.memory["directions"] + local.per_step(upload["update"])}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        return self.add_changes(super().aggregate(server, uploads), uploads, directions=uploads.sum_per_step())
