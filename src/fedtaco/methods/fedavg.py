"""FedAvg (McMahan et al., 2017): plain local SGD and the mean of the client models."""

from dataclasses import dataclass

from fedtaco.methods.base import Method


@dataclass(frozen=True)
class FedAvg(Method):
    """Clients take plain gradient steps, and the server averages their models.

        x <- x - local_lr * g, K times, from x = w
        w <- w - sum of p_i U_i, where U_i = w - x

    A server rate other than the default K local_lr scales the sum, here and in all other methods.
    """

    name = "fedavg"
    summary = "nothing: plain local steps and the mean"
    category = "baseline"
    reference = (
        "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
    )
