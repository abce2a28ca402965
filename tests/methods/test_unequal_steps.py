"""Methods whose clients take different numbers of steps, with momentum, computed with numpy from the formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from least_squares import LR, W0, D, N, alphas, cohorts, gradient, mean, run, weighted, weights
from made_uploads import make_uploads
from small_training import train
from test_further_formulas import UNEQUAL, assert_as_expected, ruan
from torch import nn

from fedtaco import InvalidInput
from fedtaco.engines import SerialEngine
from fedtaco.local_optimizer import Sgd
from fedtaco.methods import FedAvg, FedExP, FedNova, Ruan, Scaffold, Taco
from fedtaco.testing import final_state, make_federation
from fedtaco.testing.small_federation import run_rounds, skewed_clients

ROUNDS = 3
MOMENTA = [{}, {"momentum": 0.9}, {"momentum": 0.6, "nesterov": True}]


def client(i, start, steps, momentum=0.0, nesterov=False, extra=0.0):
    """Return the update of a client, and the gradients of its steps; ``extra`` is added to each gradient."""
    x, v, seen = start.copy(), np.zeros(D), []
    for _ in range(steps):
        seen.append(gradient(i, x))
        d = seen[-1] + extra
        v = momentum * v + d
        x = x - LR * (d + momentum * v if nesterov else v)
    return start - x, np.array(seen)


def effective(steps, momentum=0.0, nesterov=False):
    """Return the sum of the coefficients a_j in closed form."""
    heavy_ball = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return steps + momentum * heavy_ball if nesterov else heavy_ball


def coefficients(steps, momentum=0.0, nesterov=False):
    """Return the a_j: how often the direction of step j is added to x."""
    tails = np.array([sum(momentum**power for power in range(steps - step)) for step in range(steps)])
    return 1 + momentum * tails if nesterov else tails


def fednova(settings):
    w = W0
    for _ in range(ROUNDS):
        A = [effective(steps, **settings) for steps in UNEQUAL]
        w = w - mean(A) * mean([client(i, w, UNEQUAL[i], **settings)[0] / A[i] for i in range(N)])
    return w


def fedexp(settings, epsilon=1e-3):
    w = W0
    for _ in range(ROUNDS):
        A = [effective(steps, **settings) for steps in UNEQUAL]
        U = [client(i, w, UNEQUAL[i], **settings)[0] * mean(A) / A[i] for i in range(N)]
        w = w - max(1, mean([u @ u for u in U]) / (2 * (mean(U) @ mean(U) + epsilon))) * mean(U)
    return w


def ruan_scaled(settings):
    w, full = W0, effective(max(UNEQUAL), **settings)
    for _ in range(ROUNDS):
        factors = [full / effective(steps, **settings) for steps in UNEQUAL]
        w = w - mean([factors[i] * client(i, w, UNEQUAL[i], **settings)[0] for i in range(N)])
    return w


def scaffold(settings):
    """c_i is the mean of the client's own recorded gradients, weighted by its own coefficients."""
    w, c, own = W0, np.zeros(D), [np.zeros(D)] * N
    for _ in range(ROUNDS):
        done = [client(i, w, UNEQUAL[i], extra=c - own[i], **settings) for i in range(N)]
        a = [coefficients(steps, **settings) for steps in UNEQUAL]
        new = [a[i] @ done[i][1] / a[i].sum() for i in range(N)]
        c, own, w = mean(new), new, w - mean([update for update, _ in done])
    return w


def taco(settings):
    """G divides by the mean of the numbers of effective steps, weighted as the updates are."""
    w, G, alpha = W0, np.zeros(D), [0.1] * N
    A = [effective(steps, **settings) for steps in UNEQUAL]
    for _ in range(ROUNDS):
        U = [client(i, w, UNEQUAL[i], extra=(1 - alpha[i]) * G, **settings)[0] for i in range(N)]
        alpha = alphas(U)[0]
        G = weighted(alpha, U) / (LR * weighted(alpha, A))
        w = w - weighted(alpha, U)
    return w


UNCAPPED = Ruan(cap=1000.0)
EXPECTED = {FedNova(): fednova, FedExP(): fedexp, UNCAPPED: ruan_scaled, Scaffold(): scaffold, Taco(): taco}


@pytest.mark.parametrize("settings", MOMENTA, ids=str)
@pytest.mark.parametrize("method", EXPECTED, ids=lambda method: method.name)
def test_rounds_follow_the_formula(method, settings):
    result = run(method, ROUNDS, local_steps=UNEQUAL, **settings)
    np.testing.assert_allclose(weights(result), EXPECTED[method](settings), rtol=1e-9)


@pytest.mark.parametrize("settings", MOMENTA, ids=str)
def test_number_of_effective_steps_in_closed_form(settings):
    for steps in UNEQUAL:
        assert effective(steps, **settings) == pytest.approx(coefficients(steps, **settings).sum(), rel=1e-12)
        assert Sgd(**settings).effective_steps(steps) == pytest.approx(effective(steps, **settings), rel=1e-12)


# Ruan


@pytest.mark.parametrize("participation", [1.0, 0.67])
@pytest.mark.parametrize(("scheme", "letter"), [("complete", "A"), ("fixed", "B"), ("scaled", "C")])
def test_schemes_of_ruan_follow_the_formula(scheme, letter, participation):
    result = run(Ruan(scheme=scheme), 4, local_steps=UNEQUAL, participation=participation)
    chosen = cohorts(result)
    assert_as_expected(result, ruan(chosen, UNEQUAL, letter))
    used = [record.quantities["weight"] > 0 for record in result.history.clients]
    assert all(used) == (scheme != "complete")


@pytest.mark.parametrize("cap", [1.0, 2.5])
def test_the_cap_limits_how_much_an_update_is_scaled_up(cap):
    """The clients take 1, 3 and 5 steps, which would be scaled 5, 1.67 and 1-fold."""
    assert_as_expected(run(Ruan(cap=cap), 2, local_steps=UNEQUAL), ruan([range(N)] * 2, UNEQUAL, cap=cap))
    capped, uncapped = (weights(run(Ruan(cap=own), 1, local_steps=UNEQUAL)) for own in (cap, 10.0))
    assert not np.allclose(capped, uncapped, rtol=1e-3)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("scheme", ["complete", "fixed", "scaled"])
def test_ruan_is_fedavg_if_all_clients_are_present_and_complete(scheme, weighting):
    clients = [
        type(own)(own.x[:size], own.y[:size]) for own, size in zip(skewed_clients(), (12, 5, 9, 7, 8), strict=True)
    ]
    states = [
        final_state(method, clients=clients, weighting=weighting).server.weights
        for method in (Ruan(scheme=scheme), FedAvg())
    ]
    torch.testing.assert_close(*states, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("scheme", "factor"), [("complete", 1.0), ("fixed", 0.4), ("scaled", 0.4)])
def test_absent_clients_shorten_the_step_unless_their_weight_goes_to_the_complete_ones(scheme, factor):
    federations = [make_federation(method, participation=0.4) for method in (Ruan(scheme=scheme), FedAvg())]
    moves = []
    for federation in federations:
        start = federation.initial
        (first,) = run_rounds(federation, start, 1)
        moves.append(first.state.server.weights - start.server.weights)
    torch.testing.assert_close(moves[0], factor * moves[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("settings", MOMENTA, ids=str)
def test_the_scaled_scheme_moves_as_fednova_but_by_the_steps_of_a_complete_client(settings):
    moves = [weights(run(method, 1, local_steps=UNEQUAL, **settings)) - W0 for method in (UNCAPPED, FedNova())]
    A = [effective(steps, **settings) for steps in UNEQUAL]
    np.testing.assert_allclose(moves[0], max(A) / mean(A) * moves[1], rtol=1e-10)


def test_a_server_rate_of_ruan_stands_for_k_steps():
    full = weights(run(Ruan(), 1, local_steps=UNEQUAL)) - W0
    result = run(Ruan(), 1, local_steps=UNEQUAL, server_lr=0.4)
    np.testing.assert_allclose(weights(result), W0 + full * 0.4 / (max(UNEQUAL) * LR), rtol=1e-10)


def test_weights_by_samples_are_those_among_all_clients():
    """Two of five clients take part; their weights are fractions of all samples, not of their own."""
    sizes, uploads = (12, 5, 9, 7, 8), []

    class RecordingEngine(SerialEngine):
        def run(self, method, instructions, jobs):
            results = super().run(method, instructions, jobs)
            uploads.append((results.clients.tolist(), results.vectors["update"].clone()))
            return results

    clients = [type(own)(own.x[:size], own.y[:size]) for own, size in zip(skewed_clients(), sizes, strict=True)]
    options = {"clients": clients, "weighting": "samples", "participation": 0.4, "engine": RecordingEngine}
    federation = make_federation(Ruan(scheme="fixed"), **options)
    start = federation.initial
    (first,) = run_rounds(federation, start, 1)
    cohort, updates = uploads[0]
    q = torch.tensor([sizes[i] / sum(sizes) for i in cohort], dtype=torch.float64)
    assert len(cohort) == 2
    torch.testing.assert_close(first.state.server.weights, start.server.weights - q @ updates)


def test_expelled_clients_do_not_count_among_all_clients():
    uploads = make_uploads(torch.eye(3, dtype=torch.float64))
    uploads.coverage = 0.75
    torch.testing.assert_close(Ruan(scheme="fixed").weights(uploads), torch.full((3,), 0.25, dtype=torch.float64))


def test_a_round_without_a_complete_client_changes_neither_weights_nor_buffers():
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    method = Ruan(scheme="complete")
    result = train(model=model, method=method, local_work="uniform:0.5,0.6", local_steps=4)
    for name, tensor in model.state_dict().items():
        assert torch.equal(result.model.state_dict()[name], tensor), name
    assert {record.quantities["weight"] for record in result.history.clients} == {0.0}
    assert all(record.quantities["norm"] > 0 for record in result.history.clients)
    trained = train(model=model, method=method, local_steps=4)
    assert not torch.equal(trained.model[0].running_mean, model[0].running_mean)


# Methods that refuse unequal steps


class EqualSteps(FedAvg):
    name = "equal-steps"
    unequal_steps = None


@pytest.mark.parametrize("settings", [{"local_steps": [4, 4, 3, 4]}, {"local_work": "uniform:0.3,1"}], ids=str)
def test_a_method_that_needs_equal_steps_is_refused_before_the_run(settings):
    with pytest.raises(InvalidInput, match=r"^equal-steps requires all clients to take equally many steps; use local"):
        train(method=EqualSteps(), **settings)
    train(method=EqualSteps(), local_steps=[4] * 4, local_work="full")
