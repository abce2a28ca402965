"""The first rounds of the paper's methods, parts and controls, computed with numpy directly from their formulas.

``test_further_formulas.py`` does the same for all other methods.
"""

from __future__ import annotations

import numpy as np
import pytest
from least_squares import LR, W0, D, K, N, alphas, gradient, local_sgd, mean, run, weighted, weights

from fedtaco.methods import METHODS, PAPER_METHODS, PARTS_AND_CONTROLS, FedProxTaco, ScaffoldTaco, Stem, Taco

# The formulas


def fedavg(rounds):
    w = W0
    for _ in range(rounds):
        w = w - mean([local_sgd(i, w) for i in range(N)])
    return w


def fedprox(rounds, zeta=0.1):
    w = W0
    for _ in range(rounds):
        w = w - mean([local_sgd(i, w, lambda x, w=w: zeta * (x - w)) for i in range(N)])
    return w


def foolsgold(rounds):
    w = W0
    for _ in range(rounds):
        U = [local_sgd(i, w) for i in range(N)]
        w = w - weighted([max(c, 0) for c in alphas(U)[1]], U)
    return w


def scaffold(rounds, strength=lambda i, alpha: 1.0):
    w, c, own, alpha = W0, np.zeros(D), [np.zeros(D)] * N, [0.1] * N
    for _ in range(rounds):
        U, new = [], []
        for i in range(N):
            a = strength(i, alpha)
            x, seen = w.copy(), []
            for _ in range(K):
                g = gradient(i, x)
                seen.append(g)
                x = x - LR * (g + a * (c - own[i]))
            U.append(w - x)
            new.append(sum(seen) / K)
        c = c + sum(n - o for n, o in zip(new, own, strict=True)) / N
        own, w, alpha = new, w - mean(U), alphas(U)[0]
    return w


def stem(rounds, a=0.2, scale=LR):
    w = W0
    for _ in range(rounds):
        total = np.zeros(D)
        for i in range(N):
            before, x, v = None, w.copy(), None
            for _ in range(K):
                v = gradient(i, x) if v is None else gradient(i, x) + (1 - a) * (v - gradient(i, before))
                before, x = x, x - LR * v
            total += (w - x) + scale * v
        w = w - total / N
    return w


def fedacg(rounds, lam=0.85, beta=0.001):
    w, m = W0, np.zeros(D)
    for _ in range(rounds):
        y = w + lam * m
        m = lam * m - mean([local_sgd(i, y, lambda x, y=y: beta * (x - y)) for i in range(N)])
        w = w + m
    return w


def taco(rounds, gain=1.0, tailored=True, aggregation=True, z=False):
    w, previous, G, alpha = W0, W0, np.zeros(D), [0.1] * N
    for _ in range(rounds):
        used = alpha if tailored else [sum(alpha) / N] * N
        U = [local_sgd(i, w, lambda x, i=i, used=used, G=G: gain * (1 - used[i]) * G) for i in range(N)]
        alpha = alphas(U)[0]
        move = weighted(alpha, U) if aggregation else mean(U)
        G = move / (K * LR)
        previous, w = w, w - K * LR * G
    return w + (1 - sum(alpha) / N) * (w - previous) if z else w


def taco_aggregation(rounds):
    return taco(rounds, gain=0.0)


def fedprox_taco(rounds, pull=lambda alpha: 0.1 * (1 - alpha)):
    w, alpha = W0, [0.1] * N
    for _ in range(rounds):
        U = [local_sgd(i, w, lambda x, i=i, w=w, a=alpha: pull(a[i]) * (x - w)) for i in range(N)]
        w, alpha = w - mean(U), alphas(U)[0]
    return w


def fedcm(rounds, a=0.1):
    w, G = W0, np.zeros(D)
    for _ in range(rounds):
        U = []
        for i in range(N):
            x = w.copy()
            for _ in range(K):
                x = x - LR * (a * gradient(i, x) + (1 - a) * G)
            U.append(w - x)
        w, G = w - mean(U), mean(U) / (K * LR)
    return w


def fedavgm(rounds, beta=0.9):
    w, m = W0, np.zeros(D)
    for _ in range(rounds):
        m = beta * m + mean([local_sgd(i, w) for i in range(N)])
        w = w - m
    return w


EXPECTED = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "foolsgold": foolsgold,
    "scaffold": scaffold,
    "stem": stem,
    "fedacg": fedacg,
    "taco": taco,
    "taco-correction": lambda rounds: taco(rounds, aggregation=False),
    "taco-aggregation": taco_aggregation,
    "taco-uniform": lambda rounds: taco(rounds, tailored=False, aggregation=False),
    "fedprox-taco": fedprox_taco,
    "scaffold-taco": lambda rounds: scaffold(rounds, lambda i, alpha: 1 - alpha[i]),
    "fedcm": fedcm,
    "fedavgm": fedavgm,
}
OPTIONS = [
    (Taco(gamma=0.2), lambda rounds: taco(rounds, gain=0.2 * K)),
    (Taco(gamma=0.2, delta_scale="literal"), lambda rounds: taco(rounds, gain=0.2)),
    (Taco(delta_scale="literal"), lambda rounds: taco(rounds, gain=1 / K)),
    (Stem(server_momentum="literal"), lambda rounds: stem(rounds, scale=1.0)),
    (Stem(server_momentum="off", alpha=0.4), lambda rounds: stem(rounds, a=0.4, scale=0.0)),
    (FedProxTaco(coefficient="replace-factor"), lambda rounds: fedprox_taco(rounds, lambda alpha: 1 - alpha)),
    (FedProxTaco(coefficient="replace-alpha"), lambda rounds: fedprox_taco(rounds, lambda alpha: alpha)),
    (ScaffoldTaco(coefficient="replace-alpha"), lambda rounds: scaffold(rounds, lambda i, alpha: alpha[i])),
]


def test_every_method_has_a_formula():
    assert set(EXPECTED) == {method.name for method in (*PAPER_METHODS, *PARTS_AND_CONTROLS)}


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("name", EXPECTED)
def test_rounds_follow_the_formula(name, rounds):
    np.testing.assert_allclose(weights(run(METHODS[name](), rounds)), EXPECTED[name](rounds), rtol=1e-10)


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize(("method", "expected"), OPTIONS, ids=[str(method) for method, _ in OPTIONS])
def test_options_follow_the_formula(method, expected, rounds):
    np.testing.assert_allclose(weights(run(method, rounds)), expected(rounds), rtol=1e-10)


def test_taco_returns_z_as_its_output():
    result = run(Taco(), 3)
    z = result.output_model.weight.detach().numpy().ravel()
    np.testing.assert_allclose(z, taco(3, z=True), rtol=1e-10)
    assert not np.allclose(z, weights(result))


def test_recorded_alpha_follows_equation_7():
    result = run(METHODS["fedavg"](), 1)
    expected, cosines = alphas([local_sgd(i, W0) for i in range(N)])
    np.testing.assert_allclose([record.quantities["alpha"] for record in result.history.clients], expected, rtol=1e-12)
    np.testing.assert_allclose([record.quantities["cosine"] for record in result.history.clients], cosines, rtol=1e-12)


def test_server_learning_rate_scales_the_move():
    half = weights(run(METHODS["fedavg"](), 1, server_lr=0.5 * K * LR))
    np.testing.assert_allclose(half, W0 + 0.5 * (fedavg(1) - W0), rtol=1e-10)
