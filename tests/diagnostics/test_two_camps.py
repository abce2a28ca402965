"""The linearised model of two camps (P1 and P2 of docs/stability.md) against rounds of the methods themselves.

Every client has the loss h (x - a)² / 2 + c y with a = -1 in one camp and a = 1 in the other: the camps disagree about
x, where they have the same curvature, and agree about y, where the loss is a slope. In the limit of small steps, a
client that receives the correction g uploads ρ(x - a) + φKηg_x along x, and Kη(c + g_y) along y.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedtaco.diagnostics.stability import examine
from fedtaco.diagnostics.two_camps import is_stable, multipliers, period
from fedtaco.methods import Constants, FoolsGold, LocalContext, ServerState, Taco, TacoAggregation, Uploads
from fedtaco.uploads import UploadedVectors

N, STEPS = 10, 100
SETTLING = 80
"""Rounds at balance, until the momentum along y has settled."""
LINEAR = 0.01
"""Largest distance from balance at which the recursion is regarded as linear."""


def camps(method, curvature, slope):
    """Run a method at balance, then move it a little away; return x after each further round, and what was found there.

    ``curvature`` is κ = Kηh and ``slope`` is Kηc, where Kη is 1.
    """
    constants = Constants(clients=N, rounds=SETTLING + 40, local_steps=STEPS, local_lr=1 / STEPS)
    response = -math.expm1(-curvature)
    goals = torch.tensor([-1.0, 1.0] * (N // 2), dtype=torch.float64)
    weights = torch.zeros(2, dtype=torch.float64)
    server = ServerState(weights, method.server_memory(weights, constants))
    cohort, steps = torch.arange(N), torch.full((N,), STEPS)
    shares = torch.full((N,), 1 / N, dtype=torch.float64)
    positions, uploads, found = [], None, None
    for number in range(constants.rounds):
        if number == SETTLING:
            found = examine(method, server, uploads)
            server = server.moved(torch.tensor([1e-5, 0.0], dtype=torch.float64))
        broadcast = method.broadcast(server, cohort)
        received = {**broadcast.vectors, **{name: column[:, None] for name, column in broadcast.scalars.items()}}
        local = LocalContext(constants, broadcast.start, received, {}, STEPS, no_gradient, no_gradient)
        correction = method.correction(local)
        if correction is None:
            correction = torch.zeros(N, 2, dtype=torch.float64)
        update = torch.stack(
            [
                response * (server.weights[0] - goals) + response / curvature * correction[:, 0],
                slope + correction[:, 1],
            ],
            dim=1,
        )
        uploads = Uploads(constants, cohort, UploadedVectors({"update": update}), steps, shares)
        uploads.aggregation_weights = method.weigh(server, uploads)
        server = method.aggregate(server, uploads)
        positions.append(float(server.weights[0]))
        if abs(positions[-1]) > LINEAR:
            break
    return np.array(positions[SETTLING:]), found


def no_gradient(x):
    raise AssertionError("the steps are computed in closed form")


class UntailoredTaco(Taco):
    """TACO with the mean α in the correction of every client, as P2 assumes."""

    def cohort_alpha(self, server, cohort):
        alpha = super().cohort_alpha(server, cohort)
        return alpha.mean().expand_as(alpha)


def fitted_multipliers(positions, order):
    """Return the factors of the linear recursion that a sequence follows, the largest in absolute value first."""
    scale = np.abs(positions).max()
    columns = [positions[order - lag : -lag] / scale for lag in range(1, order + 1)]
    factors = np.linalg.lstsq(np.stack(columns, axis=1), positions[order:] / scale, rcond=None)[0]
    return sorted(np.roots([1, *-factors]), key=abs, reverse=True)


def tailored_multiplier(found, curvature):
    """Return the largest factor if each client has a correction of its own: it shortens the uploads of one camp."""
    response = -math.expm1(-curvature)
    mean = np.array([response, response / curvature * found.momentum, 0])
    surplus = (found.gain - 1) * mean - np.array([0, 0, (1 - found.momentum) * found.share])
    move = mean + surplus
    return max(np.linalg.eigvals(np.array([[1, 0, 0] - move, move, surplus])), key=abs)


@pytest.mark.parametrize("curvature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("closeness", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("method", [FoolsGold(), TacoAggregation()], ids=lambda method: method.name)
def test_aggregation_alone_changes_the_distance_by_one_minus_gain_times_response(method, curvature, closeness):
    """Closeness 1 is near the critical gain 2 / ρ, above which the model alternates."""
    response = -math.expm1(-curvature)
    slope = closeness * response * math.sqrt(response / 2)
    positions, found = camps(method, curvature, slope)
    measured = positions[1:] / positions[:-1]
    assert measured[:3] == pytest.approx(1 - found.gain * response, rel=0.02, abs=0.005)
    assert multipliers(found.gain, 0.0, curvature)[0].real == pytest.approx(measured[0], rel=0.02, abs=0.005)
    assert is_stable(found.gain, 0.0, curvature) == (abs(measured[0]) < 1)


@pytest.mark.parametrize(("curvature", "slope"), [(0.3, 0.095), (0.7, 0.15), (1.0, 0.18), (1.0, 0.14), (1.5, 0.19)])
def test_with_momentum_growth_and_period_are_those_of_the_model(curvature, slope):
    positions, found = camps(UntailoredTaco(), curvature, slope)
    measured = fitted_multipliers(positions, 2)[0]
    assert abs(measured) == pytest.approx(abs(multipliers(found.gain, found.momentum, curvature)[0]), rel=0.02)
    assert 2 * math.pi / abs(np.angle(measured)) == pytest.approx(
        period(found.gain, found.momentum, curvature), rel=0.02
    )


@pytest.mark.parametrize(("curvature", "slope"), [(0.3, 0.08), (0.7, 0.13), (1.0, 0.16), (1.0, 0.13), (1.5, 0.16)])
def test_a_tailored_correction_damps_the_oscillation(curvature, slope):
    positions, found = camps(Taco(), curvature, slope)
    measured = abs(fitted_multipliers(positions, 3)[0])
    assert measured == pytest.approx(abs(tailored_multiplier(found, curvature)), rel=0.02)
    assert measured < abs(multipliers(found.gain, found.momentum, curvature)[0])


@pytest.mark.parametrize("curvature", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("relaxation", [0.5, 1.0])
def test_the_conditions_of_p2_are_those_of_the_roots(curvature, momentum, relaxation):
    response = -math.expm1(-curvature)
    part = response / curvature * momentum
    for gain in np.linspace(0.5, 12, 60):
        written_out = gain * part < 1 and gain * (relaxation * response - 2 * part) < 2
        assert is_stable(gain, momentum, curvature, relaxation) == written_out


@pytest.mark.parametrize(("curvature", "momentum"), [(0.2, 0.5), (1.0, 0.6), (1.5, 0.65)])
def test_the_critical_period_is_the_formula_of_p2(curvature, momentum):
    gain = curvature / (-math.expm1(-curvature) * momentum)
    assert period(gain, momentum, curvature) == pytest.approx(2 * math.pi / math.acos(1 - curvature / (2 * momentum)))


def test_a_smaller_step_does_not_help_taco():
    """As κ becomes small, the condition is Γ < 1 / β."""
    assert is_stable(1.6, 0.6, 1e-6)
    assert not is_stable(1.7, 0.6, 1e-6)
