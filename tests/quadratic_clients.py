"""Clients with quadratic losses f_i(w) = (w - c_i)' H_i (w - c_i) / 2, and their rounds computed with numpy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from fedtaco.data import TensorSamples
from fedtaco.models import FlatModel
from fedtaco.testing import small_federation

K, LR, ROUNDS = 4, 0.1, 3
CURVATURES = [np.diag([1.0, 4.0]), np.diag([3.0, 0.5]), np.array([[2.0, 0.8], [0.8, 1.0]])]
CENTRES = [np.array([2.0, -1.0]), np.array([-3.0, 2.0]), np.array([0.5, 4.0])]
N = len(CENTRES)
START = np.array([1.0, -2.0])
MEAN_CURVATURE = sum(CURVATURES) / N


class Point(nn.Module):
    """A model that is a point in the plane; it passes its input on to the loss."""

    def __init__(self, start=(0.0, 0.0)):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, curvature):
        return self.w.expand(len(curvature), 2), curvature


def quadratic(output, centre):
    w, curvature = output
    gap = w - centre
    return 0.5 * torch.einsum("bi,bij,bj->b", gap, curvature, gap).mean()


def make_federation(method, *, curvatures=CURVATURES, constants=None, **options):
    """Return a federation that diagnoses its rounds; a client's only sample is (H_i, c_i)."""
    pairs = zip(curvatures, CENTRES, strict=True)
    clients = [TensorSamples(torch.from_numpy(H)[None], torch.from_numpy(c)[None]) for H, c in pairs]
    return small_federation.make_federation(
        method,
        model=FlatModel(Point(START.tolist())),
        clients=clients,
        loss=quadratic,
        test=None,
        diagnose=True,
        **{"rounds": ROUNDS, "local_steps": K, "local_lr": LR, "batch_size": 1, **(constants or {}), **options},
    )


def diagnose(method, **options):
    """Run a method and return the diagnostics of its rounds."""
    federation = make_federation(method, **options)
    return [finished.diagnostics for finished in federation.rounds(federation.initial)]


def gradient(i, x):
    return CURVATURES[i] @ (x - CENTRES[i])


def global_gradient(x):
    return sum(gradient(i, x) for i in range(N)) / N


def global_loss(x):
    return sum((x - c) @ H @ (x - c) / 2 for H, c in zip(CURVATURES, CENTRES, strict=True)) / N


def local_round(i, w, start=None, extra=lambda x: np.zeros(2)):
    """Return what a client does that adds ``extra(x)`` to its gradients: its points, and the parts of its move."""
    x = w.copy() if start is None else start.copy()
    begin, points, by_gradients, by_extra = x.copy(), [], np.zeros(2), np.zeros(2)
    for _ in range(K):
        points.append(x.copy())
        g, e = gradient(i, x), extra(x)
        by_gradients, by_extra, x = by_gradients + LR * g, by_extra + LR * e, x - LR * (g + e)
    return SimpleNamespace(
        points=points, end=x, update=begin - x, gradients=by_gradients, correction=by_extra + (w - begin)
    )


def best_step(client, w):
    """Return the multiple of the correction that minimises the global loss after the client's gradients."""
    p, v = w - client.gradients, -client.correction
    return -(global_gradient(p) @ v) / (v @ MEAN_CURVATURE @ v)


def alphas(updates):
    """Return Eq. 7's coefficients."""
    norms, mean = [np.linalg.norm(u) for u in updates], sum(updates) / len(updates)
    cosines = [u @ mean / (n * np.linalg.norm(mean)) for u, n in zip(updates, norms, strict=True)]
    return np.array([(1 - n / sum(norms)) * max(c, 0) for n, c in zip(norms, cosines, strict=True)])
