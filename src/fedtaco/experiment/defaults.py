"""Default rounds, local steps, learning rate and target for each dataset: the paper's, where it gives them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ExperimentDefaults:
    """Default settings of experiments on one dataset."""

    rounds: int = 50
    local_steps: int = 100
    local_lr: float = 0.01
    target: float = 0.7
    """Test accuracy to which rounds are counted."""


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
DEFAULTS |= {f"{name}:unit": DEFAULTS[name] for name in ("mnist", "fmnist", "cifar10")}
"""A dataset without an entry gets the generic defaults of :class:`ExperimentDefaults`."""
