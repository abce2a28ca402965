"""FedExP (Jhunjhunwala et al., 2023, Eq. 8): the server extrapolates, more so if the updates point apart."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.methods.base import NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.methods.fednova import FedNova
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedExP(FedNova):
    """The server multiplies the mean update Ū by a factor of at least 1.

        s  = max(1, sum of p_i |U_i|² / (2 (|Ū|² + ε)))
        w <- w - s Ū

    The method returns the mean of the last two w, after the first round w itself; training continues from w. ε is a
    squared displacement: if the local rate decays, the authors' code scales ε with its square. If clients take
    different numbers of steps, FedNova's τ_eff U_i / K_i replaces U_i.
    """

    name = "fedexp"
    summary = "extrapolates the mean update by a factor computed from the norms of the updates"
    category = "adaptive server"
    reference = "Jhunjhunwala et al., FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR 2023"
    unequal_steps = (
        "Updates are divided by the client's K_i as in FedNova, so that long ones do not dominate the norms."
    )

    needs_whole_uploads = True  # for the norms of the updates

    epsilon: float = parameter(1e-3, "ε, added to the squared norm of the mean update", low=0)

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"previous": weights, "rounds": weights.new_zeros(1)}

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        steps = uploads.client_effective_steps
        return uploads.shares if (steps == steps[0]).all() else super().weigh(server, uploads)

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        rounds = server.memory["rounds"]
        moved = server.moved(self.factor(uploads) * self.displacement(uploads))
        previous = server.weights if rounds > 0 else moved.weights
        return moved.with_memory(previous=previous, rounds=rounds + 1)

    def factor(self, uploads: Uploads) -> float:
        """Return the factor s, which is 1 if all updates are zero."""
        tau_eff = self.tau_eff(uploads)
        norms = tau_eff / uploads.client_effective_steps * uploads.geometry.norms
        norm_of_mean = float(torch.linalg.vector_norm(uploads.mean_update, dtype=torch.float64))
        square = (tau_eff / uploads.effective_steps * norm_of_mean) ** 2
        mean_of_squares = float(uploads.shares @ norms.square())
        bound = 2 * (square + self.epsilon)
        return max(1.0, mean_of_squares / bound) if bound > 0 else 1.0

    def output(self, server: ServerState) -> Tensor:
        """Return the mean of the last two global models."""
        return (server.weights + server.memory["previous"]) / 2
