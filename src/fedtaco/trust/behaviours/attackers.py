"""Attackers, for comparison with freeloaders: clients that train, but change their samples or their update."""

from dataclasses import dataclass

from torch import Tensor

from fedtaco.data import TensorSamples
from fedtaco.parameters import parameter
from fedtaco.trust.behaviours.base import Behaviour, ClientView, rms


@dataclass(frozen=True)
class SignFlip(Behaviour):
    """Sends the update with its sign flipped."""

    name = "sign-flip"
    summary = "sends its update with the sign flipped"

    strength: float = parameter(1.0, "factor of the flipped update")

    def change_update(self, update: Tensor, view: ClientView) -> Tensor:
        return -self.strength * update


@dataclass(frozen=True)
class Boost(Behaviour):
    """Sends the update multiplied by a large factor, so that it outweighs all others."""

    name = "boost"
    summary = "sends its update multiplied by a large factor"

    strength: float = parameter(100.0, "factor of the update")

    def change_update(self, update: Tensor, view: ClientView) -> Tensor:
        return self.strength * update


@dataclass(frozen=True)
class LabelFlip(Behaviour):
    """Trains on labels in reverse order: class 0 becomes the last class."""

    name = "label-flip"
    summary = "trains on flipped labels"

    def change_samples(self, samples: TensorSamples, classes: int) -> TensorSamples:
        return TensorSamples(samples.x, classes - 1 - samples.y, samples.prepare, samples.chosen)


@dataclass(frozen=True)
class Gaussian(Behaviour):
    """Sends Gaussian noise in place of the update."""

    name = "gaussian"
    summary = "sends Gaussian noise in place of its update"

    strength: float = parameter(10.0, "norm of the noise divided by that of the update")

    def change_update(self, update: Tensor, view: ClientView) -> Tensor:
        return self.strength * rms(update) * view.normal()
