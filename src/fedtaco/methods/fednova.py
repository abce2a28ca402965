"""FedNova (Wang et al., 2020, Algorithm 1): updates are averaged per step, so that slow clients are not outvoted.

The weights p_i τ_eff / K_i do not sum to 1: ``weigh`` returns them normalised, and ``aggregate`` restores their sum.
"""

from dataclasses import dataclass, replace

from torch import Tensor

from fedtaco.methods.base import Method, ServerState, Uploads


@dataclass(frozen=True)
class FedNova(Method):
    """The server averages the clients' directions U_i / K_i and moves by τ_eff steps along the mean.

        τ_eff = sum of p_i K_i
        w    <- w - τ_eff * sum of p_i U_i / K_i

    The p_i are the run's weights, uniform or by samples. With momentum, the number of effective steps replaces K_i. If
    all clients take equally many steps, this is FedAvg.
    """

    name = "fednova"
    summary = "divides each update by its client's number of steps before averaging"
    category = "aggregation"
    reference = (
        "Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, "
        "NeurIPS 2020"
    )
    unequal_steps = "Every client counts by its weight p_i alone, however many steps it takes."

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        per_step = uploads.shares / uploads.client_effective_steps
        return per_step / per_step.sum()

    def tau_eff(self, uploads: Uploads) -> float:
        """Return τ_eff, the mean of the clients' numbers of steps with the run's weights."""
        return replace(uploads, aggregation_weights=uploads.shares).effective_steps

    def displacement(self, uploads: Uploads) -> Tensor:
        """Return by how much the server moves; a server rate takes the place of τ_eff * local_lr."""
        if uploads.constants.server_lr is not None:
            return uploads.relaxation * uploads.mean_update
        return self.tau_eff(uploads) / uploads.effective_steps * uploads.mean_update

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        return server.moved(self.displacement(uploads))
