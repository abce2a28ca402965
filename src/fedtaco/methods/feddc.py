"""FedDC (Gao et al., 2022): FedDyn with a gradient correction between the clients' last rounds.

The paper's drift variable h_i is -e_i. What a client adds to its g_i follows from its update, so the server derives
the change of g from the uploads, and clients send nothing else.
"""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.base import Broadcast, LocalContext, NamedTensors, ServerState, Uploads
from fedtaco.methods.cost import Cost
from fedtaco.methods.feddyn import FedDyn


@dataclass(frozen=True)
class FedDC(FedDyn):
    """FedDyn whose steps also contain the difference of the global and the client's own last direction.

        y    = w - E
        x   <- x - local_lr * (g - a e_i + a (x - y) + c - c_i), from x = y
        c_i <- c_i - c + U_i / (K_i local_lr)
        c   <- c + (sum of the changes of c_i over the cohort) / N
        e_i <- e_i + U_i
        E   <- E + (sum of U_i over the cohort) / N
        w   <- y - mean U_i, the mean of the client models

    c_i contains the pull, as in the authors' code, so it is not the mean gradient of the round.
    """

    name = "feddc"
    summary = "FedDyn with the difference of global and own last direction added to each step"
    reference = "Gao et al., FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling, CVPR 2022"
    unequal_steps = "c_i divides U_i by the client's own K_i; elsewhere no K appears."
    cost = Cost(vector_ops=3, memory=2, down=2)
    averaged = ("displacement", "direction")
    estimates_from = "update"

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(self.output(server), vectors={"direction": server.memory["direction"]})

    def correction(self, local: LocalContext) -> Tensor:
        return super().correction(local) + (local.received["direction"] - local.memory["direction"])

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        change = local.per_step(upload["update"]) - local.received["direction"]
        return {**super().mirror(upload, local), "direction": local.memory["direction"] + change}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        total = uploads.sum_per_step() - len(uploads.clients) * server.memory["direction"]
        return self.add_changes(super().aggregate(server, uploads), uploads, direction=total)
