"""Methods with every local optimizer, computed with numpy directly from the formulas, without the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from least_squares import LR, W0, D, K, N, X, Y, alphas, gradient, half_mean_square, mean, model, run, weighted, weights

import fedtaco
from fedtaco.methods import FedAvg, FedCM, FedProx, Scaffold, Stem, Taco

ROUNDS = 4


@dataclass(frozen=True)
class Settings:
    """Settings of local training, as :func:`fedtaco.train` takes them."""

    optimizer: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float | None = None
    lr_schedule: str = "constant"

    @property
    def coefficients(self):
        """The coefficient a_j of each direction in U = η sum a_j d_j."""
        tails = [sum(self.momentum**power for power in range(K - step)) for step in range(K)]
        return np.array([1 + self.momentum * tail for tail in tails] if self.nesterov else tails)

    def rate(self, number):
        name, _, option = self.lr_schedule.partition(":")
        if name == "step":
            every, decay = option.split(",")
            return LR * float(decay) ** ((number - 1) // int(every))
        if name == "exponential":
            return LR * float(option) ** (number - 1)
        return LR * (1 + np.cos(np.pi * (number - 1) / ROUNDS)) / 2 if name == "cosine" else LR


SETTINGS = [
    Settings(),
    Settings(momentum=0.9),
    Settings(momentum=0.9, nesterov=True),
    Settings(weight_decay=0.3),
    Settings(clip_norm=0.8),
    Settings("adam"),
    Settings("adam", weight_decay=0.3),
    Settings("adamw", weight_decay=0.3),
    Settings(lr_schedule="step:2,0.5"),
    Settings(momentum=0.6, lr_schedule="cosine"),
    Settings(momentum=0.7, nesterov=True, weight_decay=0.2, clip_norm=1.2, lr_schedule="exponential:0.9"),
    Settings("adamw", weight_decay=0.2, clip_norm=0.9, lr_schedule="step:3,0.1"),
]


def client(i, start, settings, rate, formula=lambda g, x: g):
    """Take K steps along ``formula(g, x)``; return the update, and the gradients that the method saw."""
    x, v, m, s, seen = start.copy(), 0.0, 0.0, 0.0, []
    decay, rho = settings.weight_decay, settings.momentum
    for k in range(1, K + 1):
        g = gradient(i, x)
        if settings.clip_norm is not None:
            g = g * min(1, settings.clip_norm / np.sqrt(g @ g))
        if settings.optimizer != "adamw":
            g = g + decay * x
        if settings.optimizer != "sgd":
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
            g = m / (1 - 0.9**k) / (np.sqrt(s / (1 - 0.999**k)) + 1e-8)
        if settings.optimizer == "adamw":
            g = g + decay * x
        seen.append(g)
        d = formula(g, x)
        v = rho * v + d
        x = x - rate * (d + rho * v if settings.nesterov else v)
    return start - x, np.array(seen)


def fedavg(settings):
    w = W0
    for number in range(1, ROUNDS + 1):
        w = w - mean([client(i, w, settings, settings.rate(number))[0] for i in range(N)])
    return w


def fedprox(settings, zeta=0.1):
    w = W0
    for number in range(1, ROUNDS + 1):
        rate = settings.rate(number)
        w = w - mean([client(i, w, settings, rate, lambda g, x, w=w: g + zeta * (x - w))[0] for i in range(N)])
    return w


def scaffold(settings):
    """c_i is the mean of the recorded gradients, weighted by the coefficients of the optimizer."""
    w, c, own, a = W0, np.zeros(D), [np.zeros(D)] * N, settings.coefficients
    for number in range(1, ROUNDS + 1):
        U, new = [], []
        for i in range(N):
            update, seen = client(i, w, settings, settings.rate(number), lambda g, x, i=i, c=c, o=own: g + c - o[i])
            U.append(update)
            new.append(a @ seen / a.sum())
        c = c + sum(n - o for n, o in zip(new, own, strict=True)) / N
        own, w = new, w - mean(U)
    return w


def taco(settings):
    w, G, alpha = W0, np.zeros(D), [0.1] * N
    for number in range(1, ROUNDS + 1):
        rate = settings.rate(number)
        U = [client(i, w, settings, rate, lambda g, x, i=i, G=G, a=alpha: g + (1 - a[i]) * G)[0] for i in range(N)]
        alpha = alphas(U)[0]
        G = weighted(alpha, U) / (rate * settings.coefficients.sum())
        w = w - weighted(alpha, U)
    return w


def fedcm(settings, a=0.1):
    w, G = W0, np.zeros(D)
    for number in range(1, ROUNDS + 1):
        rate = settings.rate(number)
        U = mean([client(i, w, settings, rate, lambda g, x, G=G: a * g + (1 - a) * G)[0] for i in range(N)])
        w, G = w - U, U / (rate * settings.coefficients.sum())
    return w


def stem(settings, a=0.2):
    """The momentum of STEM is the direction; that of the optimizer accumulates it once more."""
    w = W0
    for number in range(1, ROUNDS + 1):
        rate, total = settings.rate(number), np.zeros(D)
        for i in range(N):
            before, v = None, None

            def direction(g, x, i=i):
                nonlocal before, v
                v = g if v is None else g + (1 - a) * (v - (gradient(i, before) + settings.weight_decay * before))
                before = x
                return v

            update, _ = client(i, w, settings, rate, direction)
            total += update + rate * v
        w = w - total / N
    return w


EXPECTED = {FedAvg: fedavg, FedProx: fedprox, Scaffold: scaffold, Taco: taco, FedCM: fedcm}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("method", EXPECTED, ids=lambda method: method.name)
def test_rounds_follow_the_formula(method, settings):
    result = run(method(), ROUNDS, **vars(settings))
    np.testing.assert_allclose(weights(result), EXPECTED[method](settings), rtol=1e-9)


@pytest.mark.parametrize("settings", [Settings(momentum=0.9), Settings(momentum=0.5, weight_decay=0.3)], ids=str)
def test_stem_follows_the_formula_with_momentum(settings):
    np.testing.assert_allclose(weights(run(Stem(), ROUNDS, **vars(settings))), stem(settings), rtol=1e-9)


def test_no_two_of_these_settings_give_the_same_result():
    results = [fedavg(settings) for settings in SETTINGS]
    for place, one in enumerate(results):
        assert not any(np.allclose(one, other, rtol=1e-4) for other in results[:place])


@pytest.mark.parametrize(
    ("theirs", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {"weight_decay": 0.1}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
    ],
)
def test_one_client_of_fedavg_takes_the_steps_of_torch(theirs, options):
    """The state of the optimizer does not outlive a round."""
    x, y = torch.from_numpy(X[0]), torch.from_numpy(Y[0])
    trained = model()
    for _ in range(ROUNDS):
        optimizer = theirs(trained.parameters(), lr=LR, **options)
        for _ in range(K):
            optimizer.zero_grad()
            half_mean_square(trained(x), y).backward()
            optimizer.step()
    settings = {"optimizer": theirs.__name__.lower(), "local_steps": K, "local_lr": LR, "batch_size": len(x)}
    result = fedtaco.train(
        model(), [(x, y)], method="fedavg", rounds=ROUNDS, loss=half_mean_square, **settings, **options
    )
    torch.testing.assert_close(result.model.weight, trained.weight, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_schedule_does_not_change_the_relaxation(momentum):
    """A server rate of half the effective steps halves each move, whatever the rate of the round."""
    settings = Settings(momentum=momentum, lr_schedule="step:1,0.5")
    rate = 0.5 * LR * settings.coefficients.sum()
    w = W0
    for number in range(1, ROUNDS + 1):
        w = w - 0.5 * mean([client(i, w, settings, settings.rate(number))[0] for i in range(N)])
    np.testing.assert_allclose(weights(run(FedAvg(), ROUNDS, server_lr=rate, **vars(settings))), w, rtol=1e-10)
