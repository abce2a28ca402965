"""What must hold in every round, whatever the data."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtaco.cohort import CohortResults
from fedtaco.methods import (
    METHODS,
    Constants,
    FedAvg,
    Geometry,
    Scaffold,
    ScaffoldTaco,
    ServerState,
    Taco,
    Uploads,
    geometry_of,
)
from fedtaco.testing import CLIENTS, LOCAL_LR, STEPS, final_state, make_simulator


def uploads_of(matrix, shares=None):
    count = len(matrix)
    return Uploads(
        constants=Constants(clients=count, rounds=10, local_steps=5, local_lr=0.1),
        clients=torch.arange(count),
        vectors={"update": matrix},
        steps=torch.full((count,), 5),
        shares=torch.full((count,), 1 / count, dtype=torch.float64) if shares is None else shares,
    )


matrices = st.builds(
    lambda rows, seed: torch.randn(rows, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),
    st.integers(2, 12),
    st.integers(0, 10**6),
)


@settings(deadline=None)
@given(matrices, st.floats(1e-6, 1e6))
def test_alpha_ignores_a_common_scale(matrix, scale):
    torch.testing.assert_close(geometry_of(matrix).alpha, geometry_of(matrix * scale).alpha, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(matrices)
def test_alpha_lies_between_0_and_1_and_is_not_all_zero(matrix):
    alpha = geometry_of(matrix).alpha
    assert (alpha >= 0).all()
    assert (alpha <= 1).all()
    assert alpha.sum() > 0


@settings(deadline=None)
@given(matrices, st.sampled_from(["taco", "taco-aggregation", "foolsgold"]), st.booleans())
def test_weights_sum_to_1(matrix, name, by_samples):
    sizes = torch.arange(1.0, len(matrix) + 1, dtype=torch.float64)
    shares = sizes / sizes.sum() if by_samples else None
    weights = METHODS[name]().weigh(ServerState(matrix[0]), uploads_of(matrix, shares))
    assert float(weights.sum()) == pytest.approx(1)
    assert (weights >= 0).all()


def test_weighting_by_samples_multiplies_the_coefficients():
    matrix = torch.tensor([[3.0, 1.0], [1.0, 1.0], [2.0, -1.0]], dtype=torch.float64)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    alpha = geometry_of(matrix).alpha
    expected = shares * alpha / (shares * alpha).sum()
    torch.testing.assert_close(Taco().weigh(ServerState(matrix[0]), uploads_of(matrix, shares)), expected)


@pytest.mark.parametrize("method", [Scaffold(), Scaffold(alpha=0.5), ScaffoldTaco()], ids=str)
def test_scaffold_variate_is_the_mean_of_the_clients(method):
    simulator = make_simulator(method)
    for outcome in simulator.rounds(simulator.initial_state()):
        own = torch.stack([memory["variate"] for memory in outcome.state.memories.values()])
        torch.testing.assert_close(outcome.state.server.memory["variate"], own.mean(0))


def test_scaffold_divides_by_all_clients_under_partial_participation():
    simulator = make_simulator(Scaffold(), participation=0.4)
    for outcome in simulator.rounds(simulator.initial_state()):
        own = torch.stack([memory["variate"] for memory in outcome.state.memories.values()])
        torch.testing.assert_close(outcome.state.server.memory["variate"], own.sum(0) / CLIENTS)


@pytest.mark.parametrize("method", [Scaffold(alpha=0.5), ScaffoldTaco()], ids=str)
def test_scaffold_variate_is_the_mean_gradient_of_the_round(method):
    simulator = make_simulator(method)
    seen: dict[int, list[torch.Tensor]] = {}
    inner, current = simulator.runner.model.gradient, {"client": -1}

    def gradient(point, batch, loss, seed):
        value = inner(point, batch, loss, seed)
        seen.setdefault(current["client"], []).append(value.clone())
        return value

    class Watching:
        def run(self, method, instructions, jobs):
            results = CohortResults.empty(jobs)
            for job in jobs:
                current["client"] = job.client
                results.put(job, simulator.runner.run(method, instructions, job))
            return results

        def close(self):
            pass

    simulator.engine, simulator.runner.model.gradient = Watching(), gradient
    rounds = simulator.rounds(simulator.initial_state())
    next(rounds)
    seen.clear()
    state = next(rounds).state
    for client, gradients in seen.items():
        assert len(gradients) == STEPS
        torch.testing.assert_close(state.memories[client]["variate"], torch.stack(gradients).mean(0))


@pytest.mark.parametrize("gamma", [None, 0.2])
def test_taco_recursion(gamma):
    """G⁺ = ĝ + B · sum p_i (1 - α_i) · G, with ĝ the weighted mean of the plain gradients."""
    method = Taco(gamma=gamma)
    gain = method.gain(STEPS)
    simulator = make_simulator(method)
    state = simulator.initial_state()
    for outcome in simulator.rounds(state):
        before, after = state.server, outcome.state.server
        weights = [record.quantities["weight"] for record in outcome.clients]
        factors = torch.tensor(weights, dtype=torch.float64) @ (1 - before.memory["alpha"])
        move = (before.weights - after.weights) / (STEPS * LOCAL_LR)
        torch.testing.assert_close(after.memory["direction"], move)
        plain = plain_gradient(simulator, state, weights)
        expected = plain + gain * factors * before.memory["direction"]
        torch.testing.assert_close(after.memory["direction"], expected, rtol=1e-9, atol=1e-12)
        state = outcome.state


def plain_gradient(simulator, state, weights):
    """The weighted mean gradient along the clients' paths, replayed without the package's loop."""
    from fedtaco.data import batch_plan
    from fedtaco.randomness import generator

    total = torch.zeros_like(state.server.weights)
    gain = simulator.method.gain(STEPS)
    for client, weight in enumerate(weights):
        factor = 1 - state.server.memory["alpha"][client]
        x = state.server.weights.clone()
        samples = simulator.clients[client]
        rng = generator(0, "batches", client, state.round + 1)
        for indices in batch_plan(rng, len(samples), STEPS, 4):
            g = simulator.model.gradient(x, samples.batch(indices), simulator.config.loss, 0)
            total += weight * g / STEPS
            x = x - LOCAL_LR * (g + gain * factor * state.server.memory["direction"])
    return total


def test_uniform_taco_is_fedcm_with_a_longer_step():
    """With one α for all and B = 1, TACO adds (1 - α) G to the gradient: FedCM's mixture divided by a."""
    from fedtaco.methods import FedCM, LocalContext, TacoUniform

    direction, g, alpha = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0]), torch.tensor(0.3)
    received = {"direction": direction, "alpha": alpha}
    constants = Constants(clients=2, rounds=1, local_steps=5, local_lr=0.1)

    def step(method):
        local = LocalContext(constants, torch.zeros(2), received, {}, 5, lambda x: g.clone(), lambda x: g.clone())
        local.correction = method.correction(local)
        return method.direction(torch.zeros(2), local)

    torch.testing.assert_close(step(FedCM(alpha=0.3)), 0.3 * g + 0.7 * direction)
    torch.testing.assert_close(step(TacoUniform()), g + 0.7 * direction)


# Degenerate rounds


def test_one_client_is_not_corrected():
    assert geometry_of(torch.tensor([[3.0, 4.0]])).alpha.tolist() == [1.0]
    alone = final_state(Taco(), clients=make_simulator(Taco()).clients[:1])
    plain = final_state(FedAvg(), clients=make_simulator(Taco()).clients[:1])
    assert torch.equal(alone.server.weights, plain.server.weights)


def test_two_equal_norms_cap_alpha_at_a_half():
    alpha = geometry_of(torch.tensor([[1.0, 0.0], [0.6, 0.8]])).alpha
    assert (alpha < 0.5).all()


@pytest.mark.parametrize("name", ["taco", "taco-aggregation", "foolsgold"])
def test_zero_updates_get_no_weight_unless_all_are_zero(name):
    method = METHODS[name]()
    matrix = torch.zeros(3, 2, dtype=torch.float64)
    uploads = uploads_of(matrix)
    assert method.weigh(ServerState(matrix[0]), uploads).tolist() == pytest.approx([1 / 3] * 3)
    matrix = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    assert method.weigh(ServerState(matrix[0]), uploads_of(matrix)).tolist() == [0.0, 1.0, 0.0]


def test_opposed_updates_cancel_and_weigh_by_share():
    matrix = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert geometry_of(matrix).alpha.tolist() == [0.0, 0.0]
    assert Taco().weigh(ServerState(matrix[0]), uploads_of(matrix)).tolist() == [0.5, 0.5]


def test_orthogonal_clients_reach_the_floor():
    matrix = torch.eye(20, dtype=torch.float64)
    torch.testing.assert_close(geometry_of(matrix).alpha, torch.full((20,), 0.95 / 20**0.5, dtype=torch.float64))


def test_alpha_of_the_absent_is_kept():
    simulator = make_simulator(Taco(), participation=0.4)
    state = simulator.initial_state()
    assert state.server.memory["alpha"].tolist() == [0.1] * CLIENTS
    for outcome in simulator.rounds(state):
        fresh = {record.client: record.quantities["alpha"] for record in outcome.clients}
        for client in range(CLIENTS):
            expected = fresh.get(client, float(state.server.memory["alpha"][client]))
            assert float(outcome.state.server.memory["alpha"][client]) == pytest.approx(expected)
        state = outcome.state


def test_geometry_of_wide_matrices_is_summed_over_blocks(monkeypatch):
    matrix = torch.randn(4, 37, dtype=torch.float64)
    whole = geometry_of(matrix)
    monkeypatch.setattr("fedtaco.methods.geometry.BLOCK_NUMBERS", 20)
    blocks = geometry_of(matrix)
    assert isinstance(blocks, Geometry)
    torch.testing.assert_close(blocks.cosines, whole.cosines)
    torch.testing.assert_close(blocks.norms, matrix.norm(dim=1))


def test_an_upload_against_the_mean_has_no_coefficient():
    matrix = torch.tensor([[3.0, 0.0], [3.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    lengths = torch.tensor([3.0, 10**0.5, 1.0], dtype=torch.float64)
    alpha = geometry_of(matrix).alpha
    assert float(alpha[2]) == 0
    mean = matrix.mean(0)
    expected = (1 - lengths / lengths.sum()) * (matrix @ mean / (lengths * mean.norm()))
    torch.testing.assert_close(alpha[:2], expected[:2])


def test_unequal_steps_count_by_their_weights():
    uploads = uploads_of(torch.ones(3, 2, dtype=torch.float64))
    uploads.steps = torch.tensor([1, 4, 10])
    uploads.aggregation_weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert uploads.effective_steps == pytest.approx(4)
    torch.testing.assert_close(uploads.per_step(uploads.mean_update), torch.full((2,), 1 / 0.4, dtype=torch.float64))
    uploads.constants = Constants(clients=3, rounds=1, local_steps=10, local_lr=0.1, server_lr=0.2)
    assert uploads.relaxation == pytest.approx(0.5)
