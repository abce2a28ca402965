"""A small model with layers that tests make personal."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from fedtaco.testing.small_federation import CLASSES, FEATURES


def batch_norm_model():
    torch.manual_seed(3)
    return nn.Sequential(
        OrderedDict(first=nn.Linear(FEATURES, 6), bn=nn.BatchNorm1d(6), relu=nn.ReLU(), head=nn.Linear(6, CLASSES))
    )
