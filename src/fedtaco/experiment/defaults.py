"""Default rounds, local steps, learning rate and target of experiments on each dataset, as in the paper."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExperimentDefaults:
    """Settings that experiments on a dataset use unless others are given."""

    rounds: int = 50
    local_steps: int = 100
    local_lr: float = 0.01
    target: float = 0.7
    """The test accuracy that rounds-to-accuracy counts towards."""


DEFAULTS = {
    "digits": ExperimentDefaults(rounds=20, local_steps=50, local_lr=0.05, target=0.9),
    "mnist": ExperimentDefaults(rounds=100, target=0.9),
    "fmnist": ExperimentDefaults(rounds=100, target=0.7),
    "femnist": ExperimentDefaults(rounds=100, target=0.7),
    "femnist:digits": ExperimentDefaults(rounds=100, target=0.9),
    "svhn": ExperimentDefaults(rounds=100, local_steps=1000, target=0.7),
    "cifar10": ExperimentDefaults(rounds=200, local_steps=1000, target=0.5),
    "cifar100": ExperimentDefaults(rounds=200, local_steps=200, target=0.54),
    "adult": ExperimentDefaults(target=0.78),
    "adult:standardized": ExperimentDefaults(target=0.78),
    "shakespeare": ExperimentDefaults(local_steps=200, local_lr=1.0, target=0.5),
}
"""A dataset without an entry gets the generic defaults of :class:`ExperimentDefaults`."""
