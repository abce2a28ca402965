"""Image datasets: pixels are stored as bytes and standardised per batch."""

import io
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedtaco.data.cache import Facts
from fedtaco.data.columns import channels_first
from fedtaco.data.published_files import byte_labels
from fedtaco.data.sources.base import Array
from fedtaco.data.sources.hub import HubSource

UNIT = ":unit"
"""End of the name of a dataset whose pixels are not standardised."""


@dataclass(frozen=True)
class Standardize:
    """Multiply pixels by ``scale``, then subtract the mean and divide by the standard deviation, per channel."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(0 <= mean <= 1 for mean in self.mean) or not all(0 < deviation <= 1 for deviation in self.deviation):
            raise ValueError("the mean or the standard deviation of a channel is not between 0 and 1")

    def __call__(self, images: Tensor) -> Tensor:
        mean, deviation = (torch.tensor(v, device=images.device)[:, None, None] for v in (self.mean, self.deviation))
        return images.float().mul_(self.scale).sub_(mean).div_(deviation)


@dataclass(frozen=True)
class ImageSource(HubSource):
    """Images as bytes (n, channels, height, width), standardised by the training set's statistics."""

    unit: bool = field(default=False, kw_only=True)
    """Whether pixels are numbers from 0 to 1 that are not standardised."""

    @property
    def cache_name(self) -> str:
        return self.info.name.removesuffix(UNIT)

    def with_unit_pixels(self) -> Self:
        """Return the same dataset, from the same files and cache, with pixels from 0 to 1."""
        info = replace(self.info, name=f"{self.info.name}{UNIT}", title=f"{self.info.title}, pixels from 0 to 1")
        return replace(self, info=info, unit=True)

    def statistics(self, x: Array) -> Facts:
        """Return mean and standard deviation of each channel scaled to [0, 1], computed from histograms."""
        values = np.arange(256) / 255
        counts = [np.bincount(x[:, channel].ravel(), minlength=256) for channel in range(x.shape[1])]
        means = [float(count @ values / count.sum()) for count in counts]
        squares = [float(count @ values**2 / count.sum()) for count in counts]
        return {"mean": means, "deviation": [max(0.0, s - m * m) ** 0.5 for s, m in zip(squares, means, strict=True)]}

    def prepare(self, facts: Facts) -> Standardize:
        mean, deviation = facts["mean"], facts["deviation"]
        if not len(mean) == len(deviation) == self.info.shape[0]:
            raise ValueError("there is not one mean and one standard deviation per channel")
        if self.unit:
            mean, deviation = [0.0] * len(mean), [1.0] * len(mean)
        return Standardize(1 / 255, tuple(mean), tuple(deviation))

    def encode_hub(self, inputs: list[Any], targets: list[Any]) -> tuple[Array, Array]:
        pixels = np.stack([decode_image(image, self.info.shape) for image in inputs])
        return channels_first(pixels), byte_labels(targets)


def decode_image(stored: Any, shape: tuple[int, ...]) -> Array:
    """Return the pixels of a PNG or JPEG image, which must have this shape (channels, height, width)."""
    from PIL import Image

    channels, height, width = shape
    try:
        image = Image.open(io.BytesIO(stored["bytes"]), formats=("PNG", "JPEG"))
        if image.size != (width, height):  # checked before the pixels are decoded
            raise ValueError(f"it has {image.width} × {image.height} pixels instead of {width} × {height}")
        return np.asarray(image.convert("L" if channels == 1 else "RGB"), np.uint8)
    except Exception as error:  # a damaged image may raise almost anything
        raise ValueError(f"an image cannot be decoded: {error}") from error
