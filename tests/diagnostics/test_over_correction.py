"""The over-correction index on quadratic clients, where the best step along a correction is known."""

from __future__ import annotations

import numpy as np
import pytest
from quadratic_clients import (
    CENTRES,
    LR,
    START,
    K,
    N,
    alphas,
    best_step,
    diagnose,
    global_gradient,
    global_loss,
    local_round,
)

from fedtaco.methods import FedACG, FedAvg, FedAvgM, FedProx, Scaffold, TacoSteady, TacoUniform

CURVED_DOWN = [-np.eye(2)] * N


def mean(vectors):
    return sum(vectors) / N


def fedprox(zeta):
    w = START
    while True:
        clients = [local_round(i, w, extra=lambda x, w=w: zeta * (x - w)) for i in range(N)]
        yield w, clients
        w = w - mean([client.update for client in clients])


def scaffold():
    w, own = START, [np.zeros(2)] * N
    while True:
        corrections = [mean(own) - c for c in own]
        clients = [local_round(i, w, extra=lambda x, c=c: c) for i, c in enumerate(corrections)]
        yield w, clients
        pairs = zip(clients, corrections, strict=True)
        own = [client.update / (K * LR) - correction for client, correction in pairs]
        w = w - mean([client.update for client in clients])


def fedacg(momentum, beta):
    w, m = START, np.zeros(2)
    while True:
        y = w + momentum * m
        clients = [local_round(i, w, start=y, extra=lambda x, y=y: beta * (x - y)) for i in range(N)]
        yield w, clients
        m = momentum * m - mean([client.update for client in clients])
        w = w + m


def taco_uniform():
    w, direction, alpha = START, np.zeros(2), 0.1
    while True:
        correction = (1 - alpha) * direction
        clients = [local_round(i, w, extra=lambda x, c=correction: c) for i in range(N)]
        yield w, clients
        updates = [client.update for client in clients]
        direction, alpha = mean(updates) / (K * LR), alphas(updates).mean()
        w = w - mean(updates)


CASES = [
    pytest.param(FedProx(zeta=0.5), lambda: fedprox(0.5), id="pull"),
    pytest.param(Scaffold(), scaffold, id="control variates"),
    pytest.param(FedACG(momentum=0.8, beta=0.3), lambda: fedacg(0.8, 0.3), id="look-ahead and pull"),
    pytest.param(TacoUniform(), taco_uniform, id="global direction"),
]


@pytest.mark.parametrize(("method", "by_hand"), CASES)
def test_index_is_the_step_over_the_best_step(method, by_hand):
    measured = 0
    for record, (w, clients) in zip(diagnose(method), by_hand(), strict=False):
        for one, client in zip(record.clients, clients, strict=True):
            if not client.correction.any():
                assert one.over_correction is None
                continue
            measured += 1
            step = best_step(client, w)
            assert one.over_correction == pytest.approx(1 / step)
            assert one.is_over_corrected == (step < 1)
            reached = w - client.gradients - client.correction
            np.testing.assert_allclose(reached, client.end)
            assert one.is_over_corrected == (global_gradient(reached) @ -client.correction > 0)
            at_best = global_loss(w - client.gradients - step * client.correction)
            assert at_best <= min(
                global_loss(w - client.gradients - s * client.correction) for s in np.linspace(-2, 3, 51)
            )
    assert measured >= 2 * N


@pytest.mark.parametrize(("method", "by_hand"), [CASES[0], CASES[2], CASES[3]])
def test_index_of_the_round_is_that_of_the_mean_move(method, by_hand):
    for record, (w, clients) in list(zip(diagnose(method), by_hand(), strict=False))[1:]:
        by_gradients, correction = (mean([getattr(c, part) for c in clients]) for part in ("gradients", "correction"))
        move = type("Move", (), {"gradients": by_gradients, "correction": correction})
        assert record.over_correction == pytest.approx(1 / best_step(move, w))


def taco_steady(alpha_min, power=2.0):
    """Yield w, the clients and the next w of each round."""
    w, z, alpha, a, t = START, START, np.full(N, 0.1), 1.0, 0
    while True:
        shifts = [(a - alpha[i]) * (z - w) for i in range(N)]
        start = w + a * (z - w)
        clients = [local_round(i, w, start, lambda x, i=i, s=shifts: s[i] / (K * LR)) for i in range(N)]
        updates = [client.update - shift for client, shift in zip(clients, shifts, strict=True)]
        alpha, t = alphas(updates), t + 1
        lengths = [np.linalg.norm(one) for one in updates]
        a = max(alpha_min, alpha.mean(), 1 / t)
        z = z - mean(updates) / max(a, max(lengths) / N / np.median(lengths))
        after = w + (z - w) * (power + 1) / (t + power)
        yield w, clients, after
        w = after


def test_index_of_the_round_contains_what_clients_take_out_of_their_updates():
    """With an alpha_min above the mean α, the shifts of the clients do not cancel."""
    records = diagnose(TacoSteady(alpha_min=0.9))
    for record, (w, clients, after) in list(zip(records, taco_steady(0.9), strict=False))[1:]:
        by_gradients = mean([client.gradients for client in clients])
        move = type("Move", (), {"gradients": by_gradients, "correction": w - after - by_gradients})
        assert record.over_correction == pytest.approx(1 / best_step(move, w))


def test_corrections_of_scaffold_cancel_in_the_round():
    assert all(record.over_correction is None for record in diagnose(Scaffold()))


def test_momentum_of_the_server_is_a_correction_of_the_round_only():
    first, *later = diagnose(FedAvgM())
    assert first.over_correction is None
    assert all(record.over_correction is not None for record in later)
    assert all(one.over_correction is None for record in later for one in record.clients)


def test_fedavg_corrects_nothing():
    for record in diagnose(FedAvg()):
        assert record.over_correction is None
        assert [one.correction_ratio for one in record.clients] == [0.0] * N
        assert all(one.over_correction is None and one.is_over_corrected is None for one in record.clients)


def test_there_is_no_index_where_the_loss_has_no_minimum_along_the_correction():
    for record in diagnose(FedProx(zeta=0.5), curvatures=CURVED_DOWN):
        assert all(one.correction_ratio > 0 and one.over_correction is None for one in record.clients)


def test_known_indices_of_one_step():
    """With K = 1, the index of a look-ahead follows from the distances to the optimum.

    All clients have f = h (x - c)² / 2. From the distance e, the gradient leads to (1 - ηh) e, and the look-ahead by
    λm adds λm to that and shortens the gradient's own step accordingly.
    """
    h, same = 2.0, [2.0 * np.eye(2)] * N
    centre = mean(CENTRES)
    records = diagnose(FedACG(momentum=0.5, beta=0.0), curvatures=same, constants={"local_steps": 1})
    e0 = START - centre
    m = -LR * h * e0
    e1 = e0 + m
    y = e1 + 0.5 * m
    p = e1 - LR * h * y  # without the look-ahead, but with the gradient at y
    assert records[1].over_correction == pytest.approx(np.linalg.norm(0.5 * m) / np.linalg.norm(p))
