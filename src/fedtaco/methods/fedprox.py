"""FedProx (Li et al., 2020): a pull towards the global model (paper, Algorithm 1, FedProx's loss line)."""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.base import LocalContext, Method
from fedtaco.methods.cost import Cost
from fedtaco.methods.tailored import LONGER_UPLOADS, TACO_PAPER, Tailored
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class FedProx(Method):
    """Clients add the gradient of the penalty ζ/2 |x - w|² to their gradients.

        x <- x - local_lr * (g + ζ (x - w))

    Everything else is as in FedAvg.
    """

    name = "fedprox"
    summary = "pulls each step towards the global model"
    category = "correction"
    reference = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020"
    cost = Cost(vector_ops=2)

    zeta: float = parameter(0.1, "ζ, weight of the pull", low=0)

    def pull(self, local: LocalContext) -> float | Tensor:
        """Return the weight of the pull."""
        return self.zeta

    def direction(self, x: Tensor, local: LocalContext) -> Tensor:
        return local.gradient(x).add_((x - local.start).mul_(self.pull(local)))


@dataclass(frozen=True)
class FedProxTaco(Tailored, FedProx):
    """FedProx whose pull is tailored by TACO's coefficients (paper, Fig. "Performance gain in prior methods").

        x <- x - local_lr * (g + ζ (1 - α_i) (x - w))

    The paper's text replaces ζ by α_i. TACO's own correction factor is 1 - α_i, which is larger for a client
    with more skewed data, so the default here scales ζ by 1 - α_i.
    """

    name = "fedprox-taco"
    summary = "FedProx with a pull tailored to each client by TACO's α"
    reference = TACO_PAPER
    unequal_steps = LONGER_UPLOADS
    cost = Cost(vector_ops=2, scalars_down=1)

    coefficient: str = parameter(
        "factor",
        "a client's pull: ζ(1 - α_i) (factor), 1 - α_i (replace-factor) or α_i as in the paper (replace-alpha)",
        choices=("factor", "replace-factor", "replace-alpha"),
    )

    def pull(self, local: LocalContext) -> float | Tensor:
        alpha = local.received["alpha"]
        if self.coefficient == "replace-alpha":
            return alpha
        return (1 - alpha) * (self.zeta if self.coefficient == "factor" else 1.0)
