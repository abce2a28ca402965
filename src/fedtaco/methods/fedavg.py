"""FedAvg (McMahan et al., 2017): plain local SGD and the mean of the client models."""

from dataclasses import dataclass

from fedtaco.methods.base import Method


@dataclass(frozen=True)
class FedAvg(Method):
    """x <- x - local_lr * g, K times; w <- mean of the client models."""

    name = "fedavg"
    summary = "nothing: plain local steps and the mean"
