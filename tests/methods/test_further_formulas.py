"""The first rounds of fedtaco's own methods and those of other papers, computed with numpy from their formulas.

Each function takes the cohorts of the rounds and the clients' numbers of steps, and returns the weights of the global
model and of the model that the method returns. Formulas are written as published, with the states of the papers.
"""

from __future__ import annotations

import numpy as np
import pytest
from least_squares import LR, W0, D, K, N, alphas, cohorts, gradient, local_sgd, mean, output, run, weights

from fedtaco import InvalidInput
from fedtaco.methods import (
    FURTHER_METHODS,
    METHODS,
    FedAdam,
    FedDC,
    FedDyn,
    FedExP,
    FedMoS,
    FedYogi,
    FoolsGoldOriginal,
    Mime,
    MimeLite,
    ScaffoldM,
    StemOriginal,
    TacoSteady,
    TacoSteadyUniform,
)

EQUAL = [K] * N
UNEQUAL = [1, K, 5]


def taco_steady(rounds, steps=EQUAL, tailored=True, alpha_min=0.1, power=2.0):
    w, z, alpha, a = W0, W0, np.full(N, 0.1), 1.0
    for t, cohort in enumerate(rounds, 1):
        start, direction, U = (1 - a) * w + a * z, z - w, []
        for i in cohort:
            shift = (a - alpha[i]) * direction if tailored else np.zeros(D)
            U.append(local_sgd(i, start, lambda x, i=i, s=shift: s / (steps[i] * LR), steps[i]) - shift)
        alpha[list(cohort)] = own = alphas(U)[0]
        lengths = [np.linalg.norm(one) for one in U]
        a = max(alpha_min, np.mean(own), 1 / t)
        z = z - mean(U) / max(a, max(lengths) / len(U) / np.median(lengths))
        w = w + (z - w) * (power + 1) / (t + power)
    return w, w


def feddyn(rounds, steps=EQUAL, a=0.01):
    """Acar et al.: w⁺ = mean of the active clients' models - h/a."""
    w, h, dual, average = W0, np.zeros(D), [np.zeros(D)] * N, W0
    for cohort in rounds:
        U = {i: local_sgd(i, w, lambda x, d=dual[i], w=w: -d + a * (x - w), steps[i]) for i in cohort}
        dual = [dual[i] + a * U[i] if i in U else dual[i] for i in range(N)]
        h = h + a / N * sum(U.values())
        average = w - mean(list(U.values()))
        w = average - h / a
    return average, w


def feddc(rounds, steps=EQUAL, a=0.01):
    """Gao et al.: drift h_i, local update g_i, and w⁺ = mean of the active clients' models + mean of all h_i."""
    w, g, h, own, average = W0, np.zeros(D), [np.zeros(D)] * N, [np.zeros(D)] * N, W0
    for cohort in rounds:
        models, new = {}, {}
        for i in cohort:
            x = w.copy()
            for _ in range(steps[i]):
                x = x - LR * (gradient(i, x) + a * (x + h[i] - w) + (g - own[i]))
            models[i] = x
            new[i] = own[i] - g + (w - x) / (steps[i] * LR)
        h = [h[i] + models[i] - w if i in models else h[i] for i in range(N)]
        g = g + sum(new[i] - own[i] for i in cohort) / N
        own = [new.get(i, own[i]) for i in range(N)]
        average = mean(list(models.values()))
        w = average + sum(h) / N
    return average, w


def fednova(rounds, steps=EQUAL):
    w = W0
    for cohort in rounds:
        directions = [local_sgd(i, w, steps=steps[i]) / (LR * steps[i]) for i in cohort]
        tau_eff = mean([steps[i] for i in cohort])
        w = w - LR * tau_eff * mean(directions)
    return w, w


def ruan(rounds, steps=EQUAL, scheme="C", cap=10.0):
    """Ruan et al.: p_i = 1/N, present or not; K is the largest number of steps of a client."""
    w, full = W0, max(steps)
    for cohort in rounds:
        complete = [i for i in cohort if steps[i] == full]
        q = {
            "A": {i: 1 / N * N / len(complete) for i in complete},
            "B": dict.fromkeys(cohort, 1 / N),
            "C": {i: 1 / N * min(full / steps[i], cap) for i in cohort},
        }[scheme]
        w = w - sum(q[i] * local_sgd(i, w, steps=steps[i]) for i in q)
    return w, w


def fedmos(rounds, steps=EQUAL, a=0.2, mu=1e-4, beta=0.5, same_batch=False):
    """Wang et al.; with the whole data in every batch, a gradient on the same batch is that of the last step."""
    w, u = W0, np.zeros(D)
    for number, cohort in enumerate(rounds):
        U = []
        for i in cohort:
            x, d, last = w.copy(), None, None
            for k in range(steps[i]):
                g = gradient(i, x)
                d = g if d is None else g + (1 - a) * (d - last)
                last = g if k > 0 or same_batch else np.zeros(D)
                x = x - LR * d - mu * (x - w)
            U.append(w - x)
        if number == 0:
            w = w - mean(U)
        else:
            u = beta * u + mean(U) / LR
            w = w - LR * u
    return w, w


def mime(rounds, steps=EQUAL, beta=0.9, lite=False):
    w, m = W0, np.zeros(D)
    for cohort in rounds:
        c = mean([gradient(i, w) for i in cohort])
        U = []
        for i in cohort:
            x = w.copy()
            for _ in range(steps[i]):
                g = gradient(i, x) if lite else gradient(i, x) - gradient(i, w) + c
                x = x - LR * ((1 - beta) * g + beta * m)
            U.append(w - x)
        m, w = (1 - beta) * c + beta * m, w - mean(U)
    return w, w


def foolsgold_original(rounds, steps=EQUAL, raw=False):
    """Fung et al., Algorithm 1, entry by entry."""
    w, history = W0, [np.zeros(D)] * N
    for cohort in rounds:
        U = [local_sgd(i, w, steps=steps[i]) for i in cohort]
        for i, u in zip(cohort, U, strict=True):
            history[i] = history[i] + u
        H, n = [history[i] for i in cohort], len(cohort)
        cs = np.array([[H[i] @ H[j] / np.sqrt(H[i] @ H[i] * (H[j] @ H[j])) for j in range(n)] for i in range(n)])
        cs -= np.eye(n)
        v = [max(row) for row in cs]
        for i in range(n):
            for j in range(n):
                if v[i] < v[j]:
                    cs[i][j] *= v[i] / v[j]
        alpha = np.clip([1 - max(row) for row in cs], 0, 1)
        alpha = alpha / max(alpha)
        alpha[alpha == 1] = 0.99
        q = np.clip(np.log(alpha / (1 - alpha)) + 0.5, 0, 1)
        total = sum(q_i * u for q_i, u in zip(q, U, strict=True))
        w = w - (total if raw else total / sum(q))
    return w, w


def stem_original(rounds, steps=EQUAL, a=0.2):
    """Khanduri et al., Algorithm 1: clients take steps K - 1, the server takes the last one from the mean point."""
    w, momentum, points = W0, np.zeros(D), {}
    for cohort in rounds:
        ends, momenta = [], []
        for i in cohort:
            x, v = w.copy(), gradient(i, w)
            if i in points:
                v = v + (1 - a) * (momentum - gradient(i, points[i]))
            for _ in range(steps[i] - 1):
                before, x = x, x - LR * v
                v = gradient(i, x) + (1 - a) * (v - gradient(i, before))
            points[i] = x
            ends.append(x)
            momenta.append(v)
        momentum = mean(momenta)
        w = mean(ends) - LR * momentum
    return w, w


def scaffold_m(rounds, steps=EQUAL, beta=0.1):
    """Cheng et al.: control variates are the mean gradients, recorded step by step."""
    w, c, G, own = W0, np.zeros(D), np.zeros(D), [np.zeros(D)] * N
    for cohort in rounds:
        U, new = [], {}
        for i in cohort:
            x, seen = w.copy(), []
            for _ in range(steps[i]):
                seen.append(gradient(i, x))
                x = x - LR * (beta * (seen[-1] - own[i] + c) + (1 - beta) * G)
            U.append(w - x)
            new[i] = mean(seen)
        c = c + sum(new[i] - own[i] for i in cohort) / N
        own = [new.get(i, own[i]) for i in range(N)]
        w, G = w - mean(U), mean(U) / (mean([steps[i] for i in cohort]) * LR)
    return w, w


def fedexp(rounds, steps=EQUAL, epsilon=1e-3):
    w, returned = W0, W0
    for number, cohort in enumerate(rounds):
        tau_eff = mean([steps[i] for i in cohort])
        U = [local_sgd(i, w, steps=steps[i]) * tau_eff / steps[i] for i in cohort]
        squares, average = mean([u @ u for u in U]), mean(U)
        before, w = w, w - max(1, squares / (2 * (average @ average + epsilon))) * average
        returned = w if number == 0 else (w + before) / 2
    return w, returned


def fedadam(rounds, steps=EQUAL, eta=0.01, beta1=0.9, beta2=0.99, tau=1e-3, v0=None, corrected=False, yogi=False):
    w, m, v = W0, np.zeros(D), np.full(D, tau**2 if v0 is None else v0)
    for number, cohort in enumerate(rounds, start=1):
        average = mean([local_sgd(i, w, steps=steps[i]) for i in cohort])
        m = beta1 * m + (1 - beta1) * average
        if yogi:
            v = v - (1 - beta2) * average**2 * np.sign(v - average**2)
        else:
            v = beta2 * v + (1 - beta2) * average**2
        rate = eta * np.sqrt(1 - beta2**number) / (1 - beta1**number) if corrected else eta
        w = w - rate * m / (np.sqrt(v) + tau)
    return w, w


def fedcomgate(rounds, steps=EQUAL):
    """Haddadpour et al.: δ_i grows by the client's own direction minus the mean of all, in the same round."""
    w, delta = W0, [np.zeros(D)] * N
    for cohort in rounds:
        U = [local_sgd(i, w, lambda x, d=delta[i]: -d, steps[i]) for i in cohort]
        own = [U[i] / (steps[i] * LR) for i in cohort]
        delta = [delta[i] + own[i] - mean(own) for i in cohort]
        w = w - mean(U)
    np.testing.assert_allclose(sum(delta), 0, atol=1e-12)
    return w, w


EXPECTED = {
    "taco-steady": taco_steady,
    "taco-steady-uniform": lambda rounds, steps=EQUAL: taco_steady(rounds, steps, tailored=False),
    "feddyn": feddyn,
    "feddc": feddc,
    "fednova": fednova,
    "fedmos": fedmos,
    "mime": mime,
    "mime-lite": lambda rounds, steps=EQUAL: mime(rounds, steps, lite=True),
    "foolsgold-original": foolsgold_original,
    "stem-original": stem_original,
    "scaffold-m": scaffold_m,
    "fedexp": fedexp,
    "fedadam": fedadam,
    "fedyogi": lambda rounds, steps=EQUAL: fedadam(rounds, steps, yogi=True),
    "fedcomgate": fedcomgate,
    "ruan": ruan,
}
OPTIONS = [
    (TacoSteady(alpha_min=0.9, power=4.0), lambda rounds: taco_steady(rounds, alpha_min=0.9, power=4.0)),
    (TacoSteadyUniform(power=0.0), lambda rounds: taco_steady(rounds, tailored=False, power=0.0)),
    (FedDyn(a=2.0), lambda rounds: feddyn(rounds, a=2.0)),
    (FedDC(a=0.5), lambda rounds: feddc(rounds, a=0.5)),
    (FedMoS(a=0.7, mu=0.1, beta=0.8), lambda rounds: fedmos(rounds, a=0.7, mu=0.1, beta=0.8)),
    (FedMoS(mu=0.05, last_gradient="same-batch"), lambda rounds: fedmos(rounds, mu=0.05, same_batch=True)),
    (Mime(beta=0.5), lambda rounds: mime(rounds, beta=0.5)),
    (MimeLite(beta=0.3), lambda rounds: mime(rounds, beta=0.3, lite=True)),
    (FoolsGoldOriginal(scale="sum"), lambda rounds: foolsgold_original(rounds, raw=True)),
    (StemOriginal(alpha=0.6), lambda rounds: stem_original(rounds, a=0.6)),
    (ScaffoldM(beta=0.4), lambda rounds: scaffold_m(rounds, beta=0.4)),
    (FedExP(epsilon=0.0), lambda rounds: fedexp(rounds, epsilon=0.0)),
    (FedAdam(eta=0.3, beta1=0.5, beta2=0.8, tau=0.1), lambda rounds: fedadam(rounds, EQUAL, 0.3, 0.5, 0.8, 0.1)),
    (FedAdam(v0="zero", bias_correction="on"), lambda rounds: fedadam(rounds, v0=0.0, corrected=True)),
    (FedYogi(v0="zero", bias_correction="on"), lambda rounds: fedadam(rounds, v0=0.0, corrected=True, yogi=True)),
]


def assert_as_expected(result, expected):
    model, returned = expected
    np.testing.assert_allclose(weights(result), model, rtol=1e-9)
    np.testing.assert_allclose(output(result), returned, rtol=1e-9)


def test_every_further_method_has_a_formula():
    assert set(EXPECTED) == {method.name for method in FURTHER_METHODS}


@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("name", EXPECTED)
def test_rounds_follow_the_formula(name, rounds):
    assert_as_expected(run(METHODS[name](), rounds), EXPECTED[name]([range(N)] * rounds))


@pytest.mark.parametrize("name", [name for name in EXPECTED if not METHODS[name].needs_all_clients])
def test_partial_participation_follows_the_formula(name):
    result = run(METHODS[name](), 5, participation=0.67)
    chosen = cohorts(result)
    assert {len(cohort) for cohort in chosen} == {2}
    assert len({tuple(cohort) for cohort in chosen}) > 1
    assert_as_expected(result, EXPECTED[name](chosen))


@pytest.mark.parametrize("name", EXPECTED)
def test_unequal_steps_follow_the_formula(name):
    assert_as_expected(run(METHODS[name](), 3, local_steps=UNEQUAL), EXPECTED[name]([range(N)] * 3, UNEQUAL))


@pytest.mark.parametrize(("method", "expected"), OPTIONS, ids=[str(method) for method, _ in OPTIONS])
def test_options_follow_the_formula(method, expected):
    assert_as_expected(run(method, 3), expected([range(N)] * 3))


def test_bias_correction_needs_a_second_moment_that_fades():
    assert FedAdam(beta2=1.0).beta2 == 1
    with pytest.raises(InvalidInput, match=r"fedyogi\.beta2 is 1; it must be below 1 if bias_correction is on\."):
        FedYogi(beta2=1.0, bias_correction="on")


def test_a_server_rate_replaces_fednovas_number_of_steps():
    """w - η_g * sum of p_i U_i / (K_i η_l); the default η_g is τ_eff η_l."""
    result = run(METHODS["fednova"](), 1, local_steps=UNEQUAL, server_lr=0.4)
    full = fednova([range(N)], UNEQUAL)[0] - W0
    np.testing.assert_allclose(weights(result), W0 + full * 0.4 / (mean(UNEQUAL) * LR), rtol=1e-10)


@pytest.mark.parametrize("name", ["taco-steady", "taco-steady-uniform"])
def test_a_server_rate_scales_the_steps_of_taco_steady(name):
    """After the first round w is z, and z has moved by η_g / (K η_l) times the step at the default rate."""
    result = run(METHODS[name](), 1, server_lr=0.4)
    full = EXPECTED[name]([range(N)])[0] - W0
    np.testing.assert_allclose(weights(result), W0 + full * 0.4 / (K * LR), rtol=1e-10)
