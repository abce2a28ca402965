"""The limits of methods on quadratic clients with a known optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedtaco
from fedtaco.methods import FedAvg, FedDC, FedDyn, FedExP, FedNova, FedProx, Mime, MimeLite, Scaffold, ScaffoldM

CURVATURES = [np.diag([1.0, 4.0]), np.diag([3.0, 0.5]), np.array([[2.0, 0.8], [0.8, 1.0]])]
CENTRES = [np.array([2.0, -1.0]), np.array([-3.0, 2.0]), np.array([0.5, 4.0])]
OPTIMUM = np.linalg.solve(sum(CURVATURES), sum(H @ c for H, c in zip(CURVATURES, CENTRES, strict=True)))


class Point(nn.Module):
    """A model that is a point in the plane; it passes its input on to the loss."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, curvature):
        return self.w.expand(len(curvature), 2), curvature


def quadratic(output, centre):
    w, curvature = output
    gap = w - centre
    return 0.5 * torch.einsum("bi,bij,bj->b", gap, curvature, gap).mean()


def limit(method, local_steps):
    """Return the limit of a method on f_i(w) = (w - c_i)' H_i (w - c_i) / 2; a client's only sample is (H_i, c_i)."""
    clients = [(torch.from_numpy(H)[None], torch.from_numpy(c)[None]) for H, c in zip(CURVATURES, CENTRES, strict=True)]
    result = fedtaco.train(
        Point(), clients, method=method, rounds=100, local_steps=local_steps, batch_size=1, local_lr=0.1, loss=quadratic
    )
    return result.model.w.detach().numpy()


@pytest.mark.parametrize("method", [Scaffold(), ScaffoldM(beta=0.5), FedDyn(a=1.0), FedDC(), Mime(beta=0.5)], ids=str)
def test_corrections_reach_the_optimum_with_many_local_steps(method):
    np.testing.assert_allclose(limit(method, local_steps=5), OPTIMUM, atol=1e-8)


@pytest.mark.parametrize("method", [FedAvg(), FedProx(zeta=1.0), FedNova(), FedExP(), MimeLite(beta=0.5)], ids=str)
def test_client_drift_keeps_other_methods_from_the_optimum(method):
    assert np.linalg.norm(limit(method, local_steps=5) - OPTIMUM) > 0.01


def test_fedavg_reaches_the_optimum_with_one_local_step():
    np.testing.assert_allclose(limit(FedAvg(), local_steps=1), OPTIMUM, atol=1e-9)


def test_fedavg_converges_to_its_own_fixed_point():
    """The mean of the client models does not move where sum_i (I - (I - ηH_i)^K)(w - c_i) = 0."""
    pulls = [np.eye(2) - np.linalg.matrix_power(np.eye(2) - 0.1 * H, 5) for H in CURVATURES]
    fixed = np.linalg.solve(sum(pulls), sum(P @ c for P, c in zip(pulls, CENTRES, strict=True)))
    np.testing.assert_allclose(limit(FedAvg(), local_steps=5), fixed, atol=1e-9)
