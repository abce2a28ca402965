"""A small classification task for tests of :func:`fedtaco.train`: linear model, clients with skewed labels."""

from __future__ import annotations

import torch
from torch import nn

import fedtaco
from fedtaco import Taco


def make_clients(count=4):
    """Return clients with 30 samples of 5 features, half of whose labels are of one of 3 classes."""
    generator = torch.Generator().manual_seed(1)
    clients = []
    for client in range(count):
        y = torch.randint(0, 3, (30,), generator=generator)
        y[:15] = client % 3
        clients.append((torch.randn(30, 5, generator=generator) + y[:, None], y))
    return clients


def train(**changes):
    """Train a linear model with TACO for 3 rounds of 4 steps; ``changes`` replace these settings."""
    settings = {"rounds": 3, "local_steps": 4, "local_lr": 0.1, "method": Taco()} | changes
    clients = settings.pop("clients", None) or make_clients()
    model = settings.pop("model", None) or nn.Linear(5, 3)
    return fedtaco.train(model, clients, test=make_clients(1)[0], **settings)
