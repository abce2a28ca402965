"""FoolsGold, as the TACO paper describes it and as published; they weigh uploads by opposite criteria.

The TACO paper favours uploads that agree with the mean. It defines ρ_i by the weighted result itself, which is
circular, and its formula has a superfluous factor 1/N. Here ρ_i is the cosine with the unweighted mean, clipped at
zero, and the weights sum to one.

The original (Fung et al., 2020, Algorithm 1) punishes clients whose histories resemble each other, because sybils,
which all pursue the same aim, do. The authors add up the weighted updates; here the default is their mean.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import Expulsion, Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.tailored import TACO_PAPER
from fedtaco.parameters import parameter
from fedtaco.uploads import pairwise_cosines

SAME = 1e-6
"""If 1 - cosine is below this value for all clients, rounding errors would decide about their weights."""


@dataclass(frozen=True)
class FoolsGold(Method):
    """Uploads are weighted by their cosine with the mean upload.

        p_i in proportion to max(0, cos(U_i, mean U))

    Everything else is as in FedAvg.
    """

    name = "foolsgold"
    summary = "weights uploads by their cosine with the mean upload"
    category = "aggregation"
    reference = f"{TACO_PAPER}, Algorithm 1"

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return uploads.weights_proportional_to(uploads.geometry.cosines.clamp(min=0))


@dataclass(frozen=True)
class FoolsGoldOriginal(Method):
    """Uploads have a small weight if their client's history H_i resembles that of another client.

        H_i  <- H_i + U_i
        s_ij  = cos(H_i, H_j), 0 for i = j;  v_i = max of s_ij over j
        s_ij <- s_ij v_i / v_j  where v_i < v_j, which pardons honest clients
        a_i   = 1 - max of s_ij over j, clipped to [0, 1], divided by the largest a
        q_i   = log(a_i / (1 - a_i)) + 0.5, clipped to [0, 1]
        p_i in proportion to q_i

    Clients are compared with the others of the round. The server keeps one vector per client, and forgets those of
    clients that a detector expels.
    """

    name = "foolsgold-original"
    summary = "gives clients with similar histories of updates a small weight"
    category = "robustness"
    reference = "Fung et al., The Limitations of Federated Learning in Sybil Settings, RAID 2020"

    scale: str = parameter(
        "mean",
        "length of the step: that of the weighted mean (mean), or of the sum of q_i U_i as in the paper (sum)",
        choices=("mean", "sum"),
    )

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"history": weights.new_zeros(constants.clients, len(weights))}

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return uploads.weights_proportional_to(self.merits(server, uploads))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        history = server.memory["history"].index_copy(0, uploads.clients, self.histories(server, uploads))
        total = 1.0
        if self.scale == "sum":
            total = len(uploads.shares) * float(uploads.shares @ self.merits(server, uploads))
        return server.moved(total * uploads.relaxation * uploads.mean_update).with_memory(history=history)

    def histories(self, server: ServerState, uploads: Uploads) -> Tensor:
        """Return the new H_i of the clients of the round."""
        old = server.memory["history"]
        return torch.cat([old[uploads.clients[rows]] + block for rows, block in uploads.vectors.blocks()])

    def merits(self, server: ServerState, uploads: Uploads) -> Tensor:
        """Return the q_i, which are all zero if all histories are the same."""
        similarity = pairwise_cosines(self.histories(server, uploads)).fill_diagonal_(0)
        largest = similarity.amax(1)
        pardon = torch.where(largest[:, None] < largest, largest[:, None] / largest, 1)
        distinct = (1 - (similarity * pardon).amax(1)).clamp(0, 1)
        if distinct.max() < SAME:
            return torch.zeros_like(distinct)
        return (torch.logit(distinct / distinct.max()) + 0.5).clamp(0, 1)

    def remove_clients(self, server: ServerState, expulsion: Expulsion) -> ServerState:
        """Forget the histories of expelled clients."""
        return server.with_memory(history=server.memory["history"].index_fill(0, expulsion.clients, 0))
