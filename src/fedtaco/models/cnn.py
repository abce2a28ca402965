"""The paper's CNN for images (NIID-Bench's): two 5×5 convolutions and three fully connected layers."""

from __future__ import annotations

from torch import nn

from fedtaco.errors import InvalidInput


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """6 and 16 channels, each with ReLU and 2×2 max-pooling, then 120, 84 and one unit a class.

    >>> [sum(p.numel() for p in cnn(shape, 10).parameters()) for shape in ((1, 28, 28), (3, 32, 32))]
    [44426, 62006]
    """
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise InvalidInput(f"The cnn takes images of at least 16 × 16 pixels, not inputs of shape {shape}; try mlp.")
    height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
