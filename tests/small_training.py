"""A small classification task for tests of :func:`fedtaco.train`: linear model, skewed clients, and datasets."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import Dataset

import fedtaco
from fedtaco import Taco
from fedtaco.sample_checks import FIRST_SAMPLES


class Pairs(Dataset):
    """A dataset that is not in memory."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class WithTargets(Pairs):
    """A dataset that is not in memory, except for its labels, as those of torchvision."""

    def __init__(self, x, y):
        super().__init__(x, y)
        self.targets = y.tolist()


class Broken(Pairs):
    """A dataset whose inputs are not finite, except those that are tried before the first round."""

    def __getitem__(self, index):
        return self.x[index] * (1 if index < FIRST_SAMPLES else torch.nan), self.y[index]


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
