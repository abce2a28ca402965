"""The results P1 and P3 to P6 of docs/stability.md, on uploads and quadratic losses where they can be computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from made_uploads import make_uploads

from fedtaco.diagnostics.stability import examine
from fedtaco.diagnostics.two_camps import multipliers
from fedtaco.methods import (
    METHODS,
    Constants,
    FedACG,
    FedAvgM,
    FoolsGold,
    LocalContext,
    ServerState,
    TacoAggregation,
    TacoCorrection,
    TacoSteady,
    TacoSteadyUniform,
    TacoUniform,
    Uploads,
)
from fedtaco.uploads import UploadedVectors

NO_STATE = ServerState(torch.zeros(0))


def random_matrix(seed, clients=12):
    return torch.randn(clients, 30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.5


@pytest.mark.parametrize("name", ["foolsgold", "taco-aggregation", "taco"])
@pytest.mark.parametrize("seed", range(3))
def test_p1_weights_add_the_covariance_of_uploads_and_merits(name, seed):
    matrix, method = random_matrix(seed), METHODS[name]()
    weights = method.weigh(NO_STATE, make_uploads(matrix))
    merits = weights * 7.0
    covariance = ((merits - merits.mean()) @ (matrix - matrix.mean(0))) / len(matrix)
    torch.testing.assert_close(weights @ matrix, matrix.mean(0) + covariance / merits.mean())


@pytest.mark.parametrize("pull", [0.5, 1.0, 3.0])
def test_p1_the_gain_of_cosines_is_one_plus_the_ratio_of_variance_and_squared_mean(pull):
    """u is the pull of a camp, τ² = c² + ν²/N; the uploads' own norms take away u² / |U|²."""
    clients, common, own = 10, 0.8, 0.2
    matrix = torch.zeros(clients, 2 + clients, dtype=torch.float64)
    matrix[:, 0] = torch.tensor([-pull, pull] * (clients // 2))
    matrix[:, 1] = common
    matrix[:, 2:] = own * torch.eye(clients)
    found = examine(FoolsGold(), NO_STATE, make_uploads(matrix))
    tau, norm = common**2 + own**2 / clients, pull**2 + common**2 + own**2
    assert found.gain == pytest.approx(1 + pull**2 / tau - pull**2 / norm, rel=0.02)


# P3 and P4: quadratic losses whose Hessians are diagonal, K real steps


def upload_of(method, server, curvatures, goals, steps=20, local_lr=0.05):
    """Return the uploads of clients with the losses sum of h (x - a)² / 2, one row of h and a per client."""
    count = len(curvatures)
    constants = Constants(clients=count, rounds=9, local_steps=steps, local_lr=local_lr)
    broadcast = method.broadcast(server, torch.arange(count))
    received = {**broadcast.vectors, **{name: column[:, None] for name, column in broadcast.scalars.items()}}

    def gradient(x):
        return curvatures * (x - goals)

    local = LocalContext(constants, broadcast.start, received, {}, steps, gradient, gradient)
    local.correction = method.correction(local)
    x = broadcast.start.expand_as(goals).clone()
    for _ in range(steps):
        x = x - local_lr * method.direction(x, local)
    shares = torch.full((count,), 1 / count, dtype=torch.float64)
    steps_taken = torch.full((count,), steps)
    upload, _ = method.finish(broadcast.start - x, local)
    uploads = Uploads(constants, torch.arange(count), UploadedVectors(upload), steps_taken, shares)
    uploads.aggregation_weights = shares
    return uploads


def quadratic_clients(*, same_curvature):
    source = torch.Generator().manual_seed(4)
    goals = torch.randn(6, 3, generator=source, dtype=torch.float64)
    curvatures = 0.2 + 3 * torch.rand(6, 3, generator=source, dtype=torch.float64)
    return (curvatures[:1].expand_as(goals) if same_curvature else curvatures), goals


@pytest.mark.parametrize("same_curvature", [True, False])
def test_p3_tailoring_moves_the_server_by_a_covariance(same_curvature):
    curvatures, goals = quadratic_clients(same_curvature=same_curvature)
    weights, steps, local_lr = torch.ones(3, dtype=torch.float64), 20, 0.05
    constants = Constants(clients=6, rounds=9, local_steps=steps, local_lr=local_lr)
    last_move = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    alpha = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    tailored, same = TacoCorrection(), TacoUniform()
    memory = {"direction": last_move / (steps * local_lr), "alpha": alpha}
    server = ServerState(weights, {**tailored.server_memory(weights, constants), **memory})
    moves = [upload_of(method, server, curvatures, goals).mean_update for method in (tailored, same)]
    factors = torch.stack([(1 - local_lr * curvatures) ** k for k in range(steps)]).mean(0)
    betas = 1 - alpha
    covariance = ((betas - betas.mean())[:, None] * (factors - factors.mean(0))).mean(0)
    torch.testing.assert_close(moves[0] - moves[1], covariance * last_move, rtol=1e-9, atol=1e-12)
    assert bool((covariance.abs() < 1e-15).all()) == same_curvature


def decay(method, curvature, rounds=12):
    """Return the absolute value of the factors with which the single mode of equal clients decays."""
    steps, local_lr = 400, curvature / 400
    one = torch.ones(2, 1, dtype=torch.float64)
    constants = Constants(clients=2, rounds=rounds, local_steps=steps, local_lr=local_lr)
    weights = torch.ones(1, dtype=torch.float64)
    server = ServerState(weights, method.server_memory(weights, constants))
    positions = [1.0]
    for _ in range(rounds):
        server = method.aggregate(server, upload_of(method, server, one, 0 * one, steps, local_lr))
        positions.append(float(server.weights))
    series = np.array(positions)
    factors = np.linalg.lstsq(np.stack([series[1:-1], series[:-2]], axis=1), series[2:], rcond=None)[0]
    return abs(np.roots([1, *-factors])[0])


@pytest.mark.parametrize("curvature", [0.3, 1.0])
def test_p4_modes_decay_as_the_square_root_of_the_momentum(curvature):
    response, momentum = -math.expm1(-curvature), 0.85
    assert decay(FedAvgM(momentum=momentum), curvature) == pytest.approx(math.sqrt(momentum), rel=0.01)
    look_ahead = decay(FedACG(momentum=momentum, beta=0.0), curvature)
    assert look_ahead == pytest.approx(math.sqrt(momentum * (1 - response)), rel=0.01)
    corrected = abs(multipliers(1.0, momentum, curvature)[0])
    assert corrected == pytest.approx(math.sqrt(momentum * response / curvature))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_p4_look_ahead_is_stable_up_to_a_gain_below_two(momentum):
    """The roots are those of λ² - (1 + β)(1 - Γρ)λ + β(1 - Γρ), for which Γρ < (2 + 2β) / (1 + 2β)."""
    critical = (2 + 2 * momentum) / (1 + 2 * momentum)
    for product, stable in ((0.999 * critical, True), (1.001 * critical, False)):
        roots = np.roots([1, -(1 + momentum) * (1 - product), momentum * (1 - product)])
        assert (abs(roots).max() < 1) == stable


@pytest.mark.parametrize("curvature", [0.01, 1.0])
@pytest.mark.parametrize("momentum", [0.3, 0.7])
def test_p4_a_correction_and_server_momentum_must_add_up_to_less_than_one(momentum, curvature):
    """A mode with server momentum μ and a correction β is stable if μ + φβ < 1; φ → 1 for small steps."""
    response = -math.expm1(-curvature)
    part = response / curvature * momentum
    for server_momentum, stable in ((0.99 - part, True), (1.01 - part, False)):
        position, move, distances = 1.0, 0.0, []
        for _ in range(2000):
            move = server_momentum * move + response * position + part * move
            position -= move
            distances.append(abs(position))
        assert (max(distances[-100:]) < max(distances[:100])) == stable
    assert part < momentum


# P5: Scaffold whose control variates are the gradients at the last model


def scaffold(strength, smoothing, curvatures, rounds=400):
    """Return the distance of the model from the optimum after each round."""
    response = -np.expm1(-curvatures)
    part = response / curvatures
    position, controls, distances = 1.0, np.zeros_like(curvatures), []
    for _ in range(rounds):
        gradients = curvatures * position
        position -= np.mean(response * position + strength * part * (controls.mean() - controls))
        controls = (1 - smoothing) * controls + smoothing * gradients
        distances.append(abs(position))
    return np.array(distances)


@pytest.mark.parametrize("smoothing", [1.0, 0.5])
def test_p5_scaffold_over_corrects_if_curvatures_differ_too_much(smoothing):
    curvatures = np.array([0.1, 0.5, 4.0, 12.0])
    response = -np.expm1(-curvatures)
    covariance = abs(np.cov(response / curvatures, curvatures, bias=True)[0, 1])
    critical = (1 + response.mean() * (1 - smoothing) / smoothing) / covariance
    assert scaffold(0.99 * critical, smoothing, curvatures)[-1] < 1
    assert scaffold(1.01 * critical, smoothing, curvatures)[-1] > 1


def test_the_aggregation_of_taco_has_nearly_the_gain_of_cosines():
    uploads = make_uploads(random_matrix(1))
    gains = [examine(method, NO_STATE, uploads).gain for method in (FoolsGold(), TacoAggregation())]
    assert gains[1] == pytest.approx(gains[0], rel=0.1)


# P6: taco-steady; the first coordinate is the mode, in the others each client has a constant pull of its own


def steady_map(method, share, curvature, alpha):
    """Return the matrix by which a round changes (z, w) along a mode of clients with equal curvature.

    The pulls make the mean α of a round about 1 / √N, so that a is ``alpha_min``.
    """
    clients, steps = 25, 400
    curvatures = torch.zeros(clients, 1 + clients, dtype=torch.float64)
    curvatures[:, 0], curvatures[:, 1:] = curvature, 1e-9 * torch.eye(clients)
    goals = 1e15 * torch.cat([torch.zeros(clients, 1), torch.eye(clients)], dim=1).double()
    columns = []
    for fast, weights in ((1.0, 0.0), (0.0, 1.0)):
        point = torch.zeros(1 + clients, dtype=torch.float64)
        ahead = point.clone()
        point[0], ahead[0] = weights, fast
        constants = Constants(clients=clients, rounds=9, local_steps=steps, local_lr=1 / steps)
        memory = {"fast": ahead, "alpha": alpha, "bounded_alpha": torch.full_like(alpha[:1], method.alpha_min)}
        rounds = torch.tensor([1 / share - 1], dtype=torch.float64)
        server = ServerState(point, {**method.server_memory(point, constants), **memory, "rounds": rounds})
        after = method.aggregate(server, upload_of(method, server, curvatures, goals, steps, 1 / steps))
        columns.append([float(after.memory["fast"][0]), float(after.weights[0])])
    return np.array(columns).T


def p6_map(share, response, step, start):
    """Return the matrix of P6: the server steps ``step`` times the mean upload of clients at w + start (z - w)."""
    fast = np.array([1 - step * response * start, -step * response * (1 - start)])
    return np.stack([fast, share * fast + [0, 1 - share]])


@pytest.mark.parametrize("share", [1 / 5, 1 / 20])
@pytest.mark.parametrize("curvature", [0.3, 3.0])
@pytest.mark.parametrize("tailored", [False, True])
def test_p6_a_round_of_taco_steady_is_the_map_of_the_proof(share, curvature, tailored):
    smallest, clients = 0.4, 25
    method = (TacoSteady if tailored else TacoSteadyUniform)(alpha_min=smallest, power=0.0)
    alpha = torch.linspace(0.1, 0.3, clients, dtype=torch.float64)
    response = 1 - (1 - curvature / 400) ** 400
    behind = smallest - 0.2 if tailored else 0.0
    start = smallest - behind * (1 - response / curvature) / response
    expected = p6_map(share, response, 1 / smallest, start)
    np.testing.assert_allclose(steady_map(method, share, curvature, alpha), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("a", [0.1, 0.25, 0.6])
@pytest.mark.parametrize("response", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("shifted", [1.0, 0.4])
def test_p6_the_condition_is_that_of_the_roots(a, response, shifted):
    """Stable if and only if 4 - 2c - 2ρ(1 - c)e/a > cρ/a; for ρ = 1 and e = a this is c < 2a."""
    for share in np.linspace(0.01, 1, 100):
        margin = 4 - 2 * share - 2 * response * (1 - share) * shifted - share * response / a
        if abs(margin) > 1e-9:
            assert (abs(np.linalg.eigvals(p6_map(share, response, 1 / a, shifted * a))).max() < 1) == (margin > 0)
            assert response * shifted < 1 or (margin > 0) == (share < 2 * a)


@pytest.mark.parametrize(("t", "limit"), [(2, 1.0), (3, 14 / 15), (4, 0.9)])
def test_p6_the_short_first_steps_are_stable(t, limit):
    """With power 2, a step of t times the mean and clients that start with the a of the round before, 1 / (t - 1)."""
    for response in np.linspace(0.01, 1, 100):
        growth = abs(np.linalg.eigvals(p6_map(3 / (t + 2), response, t, 1 / (t - 1)))).max()
        assert abs(response - limit) < 1e-9 or (growth < 1) == (response < limit)


@pytest.mark.parametrize("method", [TacoSteady(), TacoSteadyUniform()], ids=str)
@pytest.mark.parametrize("weight_of_the_long", [1 / 20, 0.3])
def test_p6_no_upload_moves_the_fast_point_further_than_their_median_length(method, weight_of_the_long):
    """All uploads are orthogonal, so that the mean α is below alpha_min, and one is much longer than the others."""
    lengths = torch.tensor([17.8] + 19 * [0.6], dtype=torch.float64)
    shares = torch.tensor([weight_of_the_long] + 19 * [(1 - weight_of_the_long) / 19], dtype=torch.float64)
    uploads = make_uploads(lengths.diag(), shares)
    assert uploads.geometry.alpha.mean() < method.alpha_min
    weights = torch.zeros(20, dtype=torch.float64)
    memory = method.server_memory(weights, Constants(clients=20, rounds=99, local_steps=1, local_lr=1.0))
    later = ServerState(weights, memory).with_memory(rounds=torch.tensor([50.0]))
    fast = method.aggregate(later, uploads).memory["fast"]
    assert float(-fast[0]) == pytest.approx(0.6)
    assert float(-fast[1]) < float(-fast[0])


@pytest.mark.parametrize("method", [TacoSteady(), TacoSteadyUniform()], ids=str)
def test_p6_taco_steady_ends_where_fedavg_does(method):
    """Clients with equal curvature: the fixed point is the mean of their goals."""
    curvatures, goals = quadratic_clients(same_curvature=True)
    weights = torch.full((3,), 5.0, dtype=torch.float64)
    constants = Constants(clients=6, rounds=300, local_steps=20, local_lr=0.05)
    server = ServerState(weights, method.server_memory(weights, constants))
    for _ in range(300):
        server = method.aggregate(server, upload_of(method, server, curvatures, goals))
    torch.testing.assert_close(server.weights, goals.mean(0), rtol=0, atol=1e-6)
