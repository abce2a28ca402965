"""The limits of methods on quadratic clients with a known optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from quadratic_clients import CENTRES, CURVATURES, Point, quadratic

import fedtaco
from fedtaco.methods import FedAvg, FedDC, FedDyn, FedExP, FedNova, FedProx, Mime, MimeLite, Scaffold, ScaffoldM

OPTIMUM = np.linalg.solve(sum(CURVATURES), sum(H @ c for H, c in zip(CURVATURES, CENTRES, strict=True)))


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
