"""FedAdam and FedYogi (Reddi et al., 2021, Algorithm 2): the server applies an adaptive optimizer to the mean update.

The authors' experiments differ from their Algorithm 2: they start v at 0 instead of τ² and correct the bias of both
moments, as Keras does. ``v0`` and ``bias_correction`` select it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedtaco.errors import InvalidInput
from fedtaco.methods.base import Method, NamedTensors, ServerState, Uploads
from fedtaco.methods.constants import Constants
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedAdam(Method):
    """Adam on the server, with the mean update Ū in the place of a gradient.

        m <- β₁ m + (1 - β₁) Ū
        v <- β₂ v + (1 - β₂) Ū²
        w <- w - η m / (√v + τ)

    Squares and roots are elementwise. η is in units of the parameters, so it needs tuning. With
    ``bias_correction=on``, η is multiplied by √(1 - β₂^t) / (1 - β₁^t) in round t.
    """

    name = "fedadam"
    summary = "applies Adam to the mean update on the server"
    category = "adaptive server"
    reference = "Reddi et al., Adaptive Federated Optimization, ICLR 2021"

    eta: float = parameter(0.01, "η, the server's step size, in units of the parameters", low=0)
    beta1: float = parameter(0.9, "β₁, fraction of the first moment that is kept", low=0, high=1, open_high=True)
    beta2: float = parameter(0.99, "β₂, fraction of the second moment that is kept", low=0, high=1)
    tau: float = parameter(1e-3, "τ, added to the root of the second moment", low=0, open_low=True)
    v0: str = parameter("tau2", "second moment at the start: τ² (tau2) or 0 (zero)", choices=("tau2", "zero"))
    bias_correction: str = parameter("off", "whether moments are corrected for their start", choices=("off", "on"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bias_correction == "on" and self.beta2 == 1:
            raise InvalidInput(f"{self.name}.beta2 is 1; it must be below 1 if bias_correction is on.")

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        start = self.tau**2 if self.v0 == "tau2" else 0.0
        return {
            "first": torch.zeros_like(weights),
            "second": torch.full_like(weights, start),
            "rounds": weights.new_zeros(1),
        }

    def second_moment(self, last: Tensor, square: Tensor) -> Tensor:
        """Return v, given its last value and Ū²."""
        return self.beta2 * last + (1 - self.beta2) * square

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        update, rounds = uploads.relaxation * uploads.mean_update, server.memory["rounds"] + 1
        first = self.beta1 * server.memory["first"] + (1 - self.beta1) * update
        second = self.second_moment(server.memory["second"], update.square())
        step = self._rate(float(rounds)) * first / (second.sqrt() + self.tau)
        return server.moved(step).with_memory(first=first, second=second, rounds=rounds)

    def _rate(self, rounds: float) -> float:
        if self.bias_correction == "off":
            return self.eta
        return float(self.eta * (1 - self.beta2**rounds) ** 0.5 / (1 - self.beta1**rounds))


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """Yogi on the server: FedAdam whose second moment changes by at most (1 - β₂) Ū² in a round.

        m <- β₁ m + (1 - β₁) Ū
        v <- v - (1 - β₂) Ū² sign(v - Ū²)
        w <- w - η m / (√v + τ)

    Everything else is as in FedAdam.
    """

    name = "fedyogi"
    summary = "applies Yogi to the mean update on the server"

    def second_moment(self, last: Tensor, square: Tensor) -> Tensor:
        return last - (1 - self.beta2) * square * (last - square).sign()
