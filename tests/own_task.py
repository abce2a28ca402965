"""A small task of a user's own, for tests of runs on it: data of four clients, a model, and a partition."""

from __future__ import annotations

import numpy as np
import torch
from small_training import make_clients
from torch import nn

QUICK = {"rounds": 6, "local_steps": 3, "local_lr": 0.1, "batch_size": 8}


class Net(nn.Module):
    """A small network, whose initial weights depend on torch's seed."""

    def __init__(self, bias=True):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3, bias=bias))

    def forward(self, x):
        return self.layers(x)


def fixed_net():
    """Return a network that is the same every time."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return Net()


def load():
    """Return one training set and a test set."""
    x, y = (torch.cat(parts) for parts in zip(*make_clients(), strict=True))
    return (x, y), make_clients(1)[0]


def load_by_client():
    """Return the samples of each client and a test set."""
    return make_clients(), make_clients(1)[0]


def split(labels, clients, rng):
    """Give each client every so manieth sample."""
    order = rng.permutation(len(labels))
    return [np.sort(order[client::clients]) for client in range(clients)]
