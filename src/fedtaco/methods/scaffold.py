"""Scaffold (Karimireddy et al., 2020): control variates cancel client drift (paper, Algorithm 1)."""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.methods.averaged_memory import AveragedMemory
from fedtaco.methods.base import Broadcast, LocalContext, NamedTensors, ServerState, Uploads
from fedtaco.methods.cost import Cost
from fedtaco.methods.tailored import LONGER_UPLOADS, TACO_PAPER, Tailored
from fedtaco.parameters import parameter


@dataclass(frozen=True)
class Scaffold(AveragedMemory):
    """Clients add the difference of the global control variate c and their own c_i to each gradient.

        x   <- x - local_lr * (g + a (c - c_i))
        c_i <- U_i / (K_i local_lr) - a (c - c_i)
        c   <- c + (sum of the changes of c_i over the cohort) / N

    All control variates start at zero. c_i becomes the client's mean gradient of the round, for every a (the paper
    states the case a = 1); with momentum, the number of effective steps replaces K_i, and the mean is weighted. The
    changes are divided by the number of *all* clients, N, so that c remains the mean of
    the c_i of all clients.
    """

    name = "scaffold"
    summary = "adds the difference of global and own control variate to each gradient"
    category = "correction"
    reference = "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020"
    unequal_steps = "c_i divides U_i by the client's own K_i; in w, a client that takes more steps counts for more."
    cost = Cost(vector_ops=1, memory=1, down=2, up=2)
    averaged = ("variate",)
    estimates_from = "variate_change"

    alpha: float = parameter(1.0, "α, strength of the correction", low=0)

    def strength(self, local: LocalContext) -> float | Tensor:
        """Return a, the factor of the correction."""
        return self.alpha

    def broadcast(self, server: ServerState, cohort: Tensor) -> Broadcast:
        return Broadcast(server.weights, vectors={"variate": server.memory["variate"]})

    def correction(self, local: LocalContext) -> Tensor:
        return self.strength(local) * (local.received["variate"] - local.memory["variate"])

    def finish(self, update: Tensor, local: LocalContext) -> tuple[NamedTensors, NamedTensors]:
        assert local.correction is not None
        variate = local.per_step(update) - local.correction
        change = variate - local.memory["variate"]
        return {"update": update, "variate_change": change}, {"variate": variate}

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        moved = super().aggregate(server, uploads)
        return self.add_changes(moved, uploads, variate=uploads.vectors.total("variate_change"))

    def mirror(self, upload: NamedTensors, local: LocalContext) -> NamedTensors:
        return {"variate": local.memory["variate"] + upload["variate_change"]}


@dataclass(frozen=True)
class ScaffoldTaco(Tailored, Scaffold):
    """Scaffold whose correction is tailored by TACO's coefficients (paper, Fig. "Performance gain in
    prior methods").

        x <- x - local_lr * (g + a_i (c - c_i)), where a_i = a (1 - α_i)

    With unequal strengths the corrections no longer cancel over the clients, so the fixed point is
    biased by the covariance of strength and variate.
    """

    name = "scaffold-taco"
    summary = "Scaffold with a correction tailored to each client by TACO's α"
    reference = TACO_PAPER
    unequal_steps = f"{Scaffold.unequal_steps} {LONGER_UPLOADS}"
    cost = Cost(vector_ops=1, memory=1, down=2, up=2, scalars_down=1)

    coefficient: str = parameter(
        "factor",
        "strength of a client's correction: α(1 - α_i) (factor) or α_i as in the paper (replace-alpha)",
        choices=("factor", "replace-alpha"),
    )

    def strength(self, local: LocalContext) -> float | Tensor:
        alpha = local.received["alpha"]
        return alpha if self.coefficient == "replace-alpha" else self.alpha * (1 - alpha)
