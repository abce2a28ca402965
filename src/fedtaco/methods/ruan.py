"""Flexible participation (Ruan et al., 2021): three ways to weight clients that complete only a part of their work.

The weights q_i do not sum to 1: ``weigh`` returns them normalised, and ``aggregate`` restores their sum.
"""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.base import Method, ServerState, Uploads
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class Ruan(Method):
    """The server weights each update by the part of its work that the client has completed.

        complete: q_i = p_i N / C for the C clients with K_i = K, else 0
        fixed:    q_i = p_i
        scaled:   q_i = p_i min(K / K_i, cap)
        w <- w - sum of q_i U_i

    These are the paper's schemes A, B and C; the cap is not in the paper, but without one, a client that takes a single
    step counts K-fold. The p_i are the weights among all N clients, present or not: they do not sum to 1 if clients are
    absent, and the step is shorter. If no client is complete, a round of ``complete`` changes nothing. If all clients
    are present and complete, all schemes are FedAvg. K is the largest number of steps of any client; with momentum,
    effective steps replace K and K_i in ``scaled``.
    """

    name = "ruan"
    summary = "weights updates by how much of its work each client completes"
    category = "aggregation"
    reference = "Ruan et al., Towards Flexible Device Participation in Federated Learning, AISTATS 2021"
    unequal_steps = (
        "An update of fewer than K steps is not used (complete), counts as it is (fixed), or is scaled up to K steps "
        "(scaled)."
    )
    needs_all_weights = True
    needs_whole_uploads = True  # the rest would count with the weight of another round

    scheme: str = parameter(
        "scaled",
        "updates of fewer than K steps: unused (complete), as they are (fixed) or scaled up to K steps (scaled)",
        choices=("complete", "fixed", "scaled"),
    )
    cap: float = parameter(10.0, "largest factor by which an update is scaled up", low=1)

    def weights(self, uploads: Uploads) -> Tensor:
        """Return the weights q_i."""
        shares, constants = uploads.coverage * uploads.shares, uploads.constants
        if self.scheme == "complete":
            is_complete = (uploads.steps >= constants.local_steps).to(shares.dtype)
            return shares * is_complete * (constants.clients / max(1.0, float(is_complete.sum())))
        if self.scheme == "fixed":
            return shares
        full = constants.optimizer.effective_steps(constants.local_steps)
        return shares * (full / uploads.client_effective_steps).clamp(max=self.cap)

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        weights = self.weights(uploads)
        return weights / weights.sum() if weights.any() else weights

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        constants = uploads.constants
        relaxation = constants.relaxation(constants.optimizer.effective_steps(constants.local_steps))
        return server.moved(relaxation * float(self.weights(uploads).sum()) * uploads.mean_update)
