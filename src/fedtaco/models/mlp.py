"""Multi-layer perceptron; the paper's has hidden layers of 32, 16 and 8 units."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def mlp(features: int, classes: int, hidden: Sequence[int] = (32, 16, 8)) -> nn.Module:
    """Return fully connected layers with ReLU between them; the last one is called ``head``.

    >>> sum(p.numel() for p in mlp(123, 2).parameters())
    4650
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise([features, *hidden]):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    module = nn.Sequential(*layers)
    module.add_module("head", nn.Linear([features, *hidden][-1], classes))
    return module
