"""Image datasets: pixels are stored as bytes and standardised per batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtaco.data.samples import channels_first
from fedtaco.data.sources.base import Array, Facts
from fedtaco.data.sources.hub import HubSource


@dataclass(frozen=True)
class Standardize:
    """Multiply pixels by ``scale``, then subtract the mean and divide by the standard deviation, per channel."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        mean, deviation = (torch.tensor(v, device=images.device)[:, None, None] for v in (self.mean, self.deviation))
        return images.float().mul_(self.scale).sub_(mean).div_(deviation)


class ImageSource(HubSource):
    """Images as bytes (n, channels, height, width), standardised by the training set's statistics."""

    def statistics(self, x: Array) -> Facts:
        """Return mean and standard deviation of each channel scaled to [0, 1], computed from its histogram."""
        values = np.arange(256) / 255
        counts = [np.bincount(x[:, channel].ravel(), minlength=256) for channel in range(x.shape[1])]
        means = [float(count @ values / count.sum()) for count in counts]
        squares = [float(count @ values**2 / count.sum()) for count in counts]
        return {"mean": means, "deviation": [(s - m * m) ** 0.5 for s, m in zip(squares, means, strict=True)]}

    def prepare(self, facts: Facts) -> Standardize:
        return Standardize(1 / 255, tuple(facts["mean"]), tuple(facts["deviation"]))

    def encode_hub(self, inputs: list[Any], targets: list[Any]) -> tuple[Array, Array]:
        mode = "L" if self.info.shape[0] == 1 else "RGB"
        pixels = np.stack([np.asarray(image.convert(mode), np.uint8) for image in inputs])
        return channels_first(pixels), np.asarray(targets, np.uint8)
