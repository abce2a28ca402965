"""What the servers of FedNova, FedDyn, FoolsGold and FedExP do with given uploads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_uploads import make_uploads

from fedtaco.methods import Expulsion, FedDC, FedDyn, FedExP, FedNova, FoolsGoldOriginal, ServerState

SHARES = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def aggregate(method, uploads, dimensions=2):
    """Return the state after a round that began at zero weights."""
    zeros = torch.zeros(dimensions, dtype=torch.float64)
    server = ServerState(zeros, method.server_memory(zeros, uploads.constants))
    uploads.aggregation_weights = method.weigh(server, uploads)
    return method.aggregate(server, uploads)


def test_fednova_averages_directions_by_the_weights_of_the_run():
    matrix, steps = torch.tensor([[1.0, 0.0], [0.0, 6.0], [10.0, 5.0]], dtype=torch.float64), [1, 2, 5]
    uploads = make_uploads(matrix, SHARES, steps)
    moved = aggregate(FedNova(), uploads)
    mean_direction = 0.5 * matrix[0] + 0.3 * matrix[1] / 2 + 0.2 * matrix[2] / 5
    torch.testing.assert_close(moved.weights, -(0.5 * 1 + 0.3 * 2 + 0.2 * 5) * mean_direction)
    torch.testing.assert_close(uploads.aggregation_weights * 0.69, torch.tensor([0.5, 0.15, 0.04]).double())


@pytest.mark.parametrize("method", [FedDyn(), FedDC()], ids=str)
def test_feddyn_and_feddc_ignore_the_weights_of_the_run(method):
    """The duals balance unweighted gradients."""
    matrix = torch.tensor([[1.0, 0.0], [0.0, 6.0], [10.0, 5.0]], dtype=torch.float64)
    uploads = make_uploads(matrix, SHARES)
    torch.testing.assert_close(aggregate(method, uploads).weights, -matrix.mean(0))
    assert uploads.aggregation_weights.tolist() == pytest.approx([1 / 3] * 3)


def histories(*rows):
    return make_uploads(torch.tensor(rows, dtype=torch.float64))


def test_foolsgold_gives_copies_no_weight():
    uploads = histories([3.0, 1.0], [3.0, 1.0], [6.0, 2.0], [-1.0, 4.0])
    weights = FoolsGoldOriginal().weigh(ServerState(torch.zeros(2), {"history": torch.zeros(4, 2)}), uploads)
    torch.testing.assert_close(weights, torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64))


def test_foolsgold_remembers_the_updates_of_earlier_rounds():
    method = FoolsGoldOriginal()
    same = histories([1.0, 0.0], [1.0, 0.0], [0.0, 1.0])
    state = aggregate(method, same)
    different = histories([0.0, 0.1], [0.1, -0.1], [0.1, 0.0])
    assert method.weigh(ServerState(state.weights, {"history": torch.zeros(3, 2)}), different)[0] > 0.1
    torch.testing.assert_close(method.weigh(state, different), torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    after = method.remove_clients(state, Expulsion(torch.tensor([1]), 3, {1: {}}))
    assert after.memory["history"].tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_foolsgold_weights_of_many_clients_follow_the_formula(seed):
    """Algorithm 1 of Fung et al., entry by entry; some weights are neither 0 nor 1, and the pardon changes some."""
    H = np.random.default_rng(seed).normal(size=(8, 3)) + 0.5
    cs = np.array([[a @ b / np.sqrt(a @ a * (b @ b)) for b in H] for a in H]) - np.eye(8)
    v = cs.max(1)

    def weights(similarity):
        alpha = 1 - similarity.max(1)
        alpha = np.clip(alpha / alpha.max(), 1e-12, 1 - 1e-12)
        return np.clip(np.log(alpha / (1 - alpha)) + 0.5, 0, 1)

    pardoned = cs.copy()
    for i in range(8):
        for j in range(8):
            if v[i] < v[j]:
                pardoned[i, j] *= v[i] / v[j]
    merits = FoolsGoldOriginal().merits(
        ServerState(torch.zeros(3), {"history": torch.zeros(8, 3)}), make_uploads(torch.from_numpy(H))
    )
    np.testing.assert_allclose(merits.numpy(), weights(pardoned), atol=1e-9)
    assert ((merits > 0.01) & (merits < 0.99)).any()
    assert not np.allclose(weights(cs), weights(pardoned))


def test_rounding_errors_do_not_decide_about_the_weights_of_equal_clients():
    noise = 1e-7 * torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    uploads = make_uploads(torch.ones(4, 50) + noise)
    method = FoolsGoldOriginal()
    weights = method.weigh(ServerState(torch.zeros(50), {"history": torch.zeros(4, 50)}), uploads)
    assert weights.tolist() == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("rows", [([1.0, 2.0],) * 3, ([0.0, 0.0],) * 3, ([5.0, 1.0],)])
def test_foolsgold_of_equal_uploads_or_of_one_is_the_mean(rows):
    uploads = histories(*rows)
    moved = aggregate(FoolsGoldOriginal(), uploads)
    assert uploads.aggregation_weights.tolist() == pytest.approx([1 / len(rows)] * len(rows))
    torch.testing.assert_close(moved.weights, -torch.tensor(rows[0]).double())


def test_foolsgold_as_a_sum_multiplies_the_mean_by_the_sum_of_the_weights():
    matrix = torch.tensor([[1.0, 0.2], [-0.5, 1.0], [-1.0, -0.3]], dtype=torch.float64)
    method, uploads = FoolsGoldOriginal(scale="sum"), make_uploads(matrix)
    moved = aggregate(method, uploads)
    merits = method.merits(ServerState(matrix[0], {"history": torch.zeros_like(matrix)}), uploads)
    assert 0 < float(merits.sum()) != 1
    torch.testing.assert_close(moved.weights, -(merits @ matrix))


def test_fedexp_takes_half_as_long_a_step_as_the_number_of_orthogonal_uploads():
    uploads = make_uploads(3 * torch.eye(8, dtype=torch.float64))
    moved = aggregate(FedExP(epsilon=0.0), uploads, dimensions=8)
    torch.testing.assert_close(moved.weights, torch.full((8,), -8 / 2 * 3 / 8, dtype=torch.float64))


def test_fedexp_weighs_the_norms_by_samples():
    matrix = torch.tensor([[9.0, 0.0], [0.0, 1.0], [-1.0, 2.0]], dtype=torch.float64)
    mean = SHARES @ matrix
    factor = (0.5 * 81 + 0.3 * 1 + 0.2 * 5) / (2 * (mean @ mean + 0.1))
    moved = aggregate(FedExP(epsilon=0.1), make_uploads(matrix, SHARES))
    torch.testing.assert_close(moved.weights, -factor * mean)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
def test_fedexp_of_zero_uploads_does_not_move(epsilon):
    uploads = make_uploads(torch.zeros(3, 2, dtype=torch.float64))
    assert aggregate(FedExP(epsilon=epsilon), uploads).weights.tolist() == [0.0, 0.0]
