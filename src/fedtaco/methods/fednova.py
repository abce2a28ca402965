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

    The p_i are the run's weights, uniform or by samples. If all clients take equally many steps, this is FedAvg.
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

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        if uploads.constants.server_lr is not None:  # which takes the place of τ_eff * local_lr
            return super().aggregate(server, uploads)
        tau_eff = replace(uploads, aggregation_weights=uploads.shares).effective_steps
        return server.moved(tau_eff / uploads.effective_steps * uploads.mean_update)
