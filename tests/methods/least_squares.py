"""Clients with linear least-squares losses, for tests that compute rounds with numpy.

Clients use all their samples in every step, so that a gradient is H_i x - b_i.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import fedtaco

N, D, K, LR = 3, 4, 3, 0.05
SIZES = (5, 8, 6)
rng = np.random.default_rng(11)
X = [rng.normal(size=(n, D)) for n in SIZES]
Y = [x @ rng.normal(size=D) + rng.normal(size=len(x)) for x in X]
W0 = rng.normal(size=D)


def gradient(i, x):
    return X[i].T @ (X[i] @ x - Y[i]) / len(X[i])


def half_mean_square(prediction, target):
    return 0.5 * ((prediction.squeeze(-1) - target) ** 2).mean()


def model():
    """Return the linear model with the weights W0."""
    module = nn.Linear(D, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(W0)[None])
    return module


def run(method, rounds, **settings):
    samples = [WholeBatch(torch.from_numpy(x), torch.from_numpy(y)) for x, y in zip(X, Y, strict=True)]
    usual = {"local_steps": K, "batch_size": 1, "local_lr": LR, "loss": half_mean_square}
    return fedtaco.train(model(), samples, method=method, rounds=rounds, **{**usual, **settings})


class WholeBatch(torch.utils.data.Dataset):
    """A client whose only sample is its whole data, so that every batch is full."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.x, self.y


def weights(result):
    return result.model.weight.detach().numpy().ravel()


def alphas(U):
    """Return α (Eq. 7) of each update, and its cosine with their mean."""
    norms = [np.sqrt(u @ u) for u in U]
    mean = sum(U) / len(U)
    cosines = [u @ mean / (n * np.sqrt(mean @ mean)) for u, n in zip(U, norms, strict=True)]
    return [(1 - n / sum(norms)) * max(c, 0) for n, c in zip(norms, cosines, strict=True)], cosines


def mean(U):
    return sum(U) / len(U)


def weighted(p, U):
    return sum(a * u for a, u in zip(p, U, strict=True)) / sum(p)


def output(result):
    return result.output_model.weight.detach().numpy().ravel()


def cohorts(result):
    """Return the clients that took part in each round."""
    return [[one.client for one in result.history.clients if one.round == record.round] for record in result.history]


def local_sgd(i, start, extra=lambda x: 0.0, steps=K):
    """Return the update of a client that adds ``extra(x)`` to its gradients."""
    x = start.copy()
    for _ in range(steps):
        x = x - LR * (gradient(i, x) + extra(x))
    return start - x
