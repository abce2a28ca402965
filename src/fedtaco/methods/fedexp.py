"""FedExP (Jhunjhunwala et al., 2023, Eq. 8): the server extrapolates, more so if the updates point apart."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedExP(Method):
    """The server multiplies the mean update Ū by a factor of at least 1.

        s  = max(1, sum of p_i |U_i|² / (2 (|Ū|² + ε)))
        w <- w - s Ū

    The method returns the mean of the last two w, after the first round w itself; training continues from w. ε is a
    squared displacement: if the local rate decays, the authors' code scales ε with its square.
    """

    name = "fedexp"
    summary = "extrapolates the mean update by a factor computed from the norms of the updates"
    category = "adaptive server"
    reference = "Jhunjhunwala et al., FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR 2023"
    unequal_steps = "Clients that take more steps dominate the norms, and with them the factor s."

    epsilon: float = parameter(1e-3, "ε, added to the squared norm of the mean update", low=0)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"previous": weights, "rounds": weights.new_zeros(1)}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        update, rounds = uploads.relaxation * uploads.mean_update, server.memory["rounds"]
        moved = server.moved(self.factor(uploads) * update)
        previous = server.weights if rounds > 0 else moved.weights
        return moved.with_memory(previous=previous, rounds=rounds + 1)

    def factor(self, uploads: Uploads) -> float:
        """Return the factor s, which is 1 if all updates are zero."""
        square = float(torch.linalg.vector_norm(uploads.mean_update, dtype=torch.float64)) ** 2
        mean_of_squares = float(uploads.aggregation_weights @ uploads.geometry.norms.square())
        bound = 2 * (square + self.epsilon)
        return max(1.0, mean_of_squares / bound) if bound > 0 else 1.0

    def output(self, server: ServerState) -> Tensor:
        """Return the mean of the last two global models."""
        return (server.weights + server.memory["previous"]) / 2
