"""Norms, cosines and α (Eq. 7) of a round's uploads, and the weights that methods derive from them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from made_uploads import make_uploads

from fedtaco.methods import METHODS, Constants, ServerState, Taco
from fedtaco.uploads import Geometry, geometry_of

matrices = st.builds(
    lambda rows, seed: torch.randn(rows, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64),
    st.integers(2, 12),
    st.integers(0, 10**6),
)


@settings(deadline=None)
@given(matrices, st.floats(1e-6, 1e6))
def test_alpha_is_invariant_to_a_common_scale(matrix, scale):
    torch.testing.assert_close(geometry_of(matrix).alpha, geometry_of(matrix * scale).alpha, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(matrices)
def test_alpha_is_between_0_and_1_and_not_all_zero(matrix):
    alpha = geometry_of(matrix).alpha
    assert (alpha >= 0).all()
    assert (alpha <= 1).all()
    assert alpha.sum() > 0


def test_alpha_is_below_one_half_for_two_equal_norms():
    alpha = geometry_of(torch.tensor([[1.0, 0.0], [0.6, 0.8]])).alpha
    assert (alpha < 0.5).all()


def test_alpha_of_orthogonal_uploads():
    matrix = torch.eye(20, dtype=torch.float64)
    torch.testing.assert_close(geometry_of(matrix).alpha, torch.full((20,), 0.95 / 20**0.5, dtype=torch.float64))


def test_alpha_of_an_upload_opposed_to_the_mean_is_zero():
    matrix = torch.tensor([[3.0, 0.0], [3.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    lengths = torch.tensor([3.0, 10**0.5, 1.0], dtype=torch.float64)
    alpha = geometry_of(matrix).alpha
    assert float(alpha[2]) == 0
    mean = matrix.mean(0)
    expected = (1 - lengths / lengths.sum()) * (matrix @ mean / (lengths * mean.norm()))
    torch.testing.assert_close(alpha[:2], expected[:2])


def test_wide_matrices_are_summed_in_blocks(monkeypatch):
    matrix = torch.randn(4, 37, dtype=torch.float64)
    whole = geometry_of(matrix)
    monkeypatch.setattr("fedtaco.uploads.geometry.BLOCK_ENTRIES", 20)
    blocks = geometry_of(matrix)
    assert isinstance(blocks, Geometry)
    torch.testing.assert_close(blocks.cosines, whole.cosines)
    torch.testing.assert_close(blocks.norms, matrix.norm(dim=1))


@settings(deadline=None)
@given(matrices, st.sampled_from(["taco", "taco-aggregation", "foolsgold"]), st.booleans())
def test_weights_sum_to_1(matrix, name, by_samples):
    sizes = torch.arange(1.0, len(matrix) + 1, dtype=torch.float64)
    shares = sizes / sizes.sum() if by_samples else None
    weights = METHODS[name]().weigh(ServerState(matrix[0]), make_uploads(matrix, shares))
    assert float(weights.sum()) == pytest.approx(1)
    assert (weights >= 0).all()


def test_weights_are_proportional_to_shares_times_alpha():
    matrix = torch.tensor([[3.0, 1.0], [1.0, 1.0], [2.0, -1.0]], dtype=torch.float64)
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    alpha = geometry_of(matrix).alpha
    expected = shares * alpha / (shares * alpha).sum()
    torch.testing.assert_close(Taco().weigh(ServerState(matrix[0]), make_uploads(matrix, shares)), expected)


@pytest.mark.parametrize("name", ["taco", "taco-aggregation", "foolsgold"])
def test_zero_uploads_have_no_weight_unless_all_are_zero(name):
    method = METHODS[name]()
    matrix = torch.zeros(3, 2, dtype=torch.float64)
    assert method.weigh(ServerState(matrix[0]), make_uploads(matrix)).tolist() == pytest.approx([1 / 3] * 3)
    matrix = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    assert method.weigh(ServerState(matrix[0]), make_uploads(matrix)).tolist() == [0.0, 1.0, 0.0]


def test_uploads_that_cancel_are_weighted_by_their_shares():
    matrix = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert geometry_of(matrix).alpha.tolist() == [0.0, 0.0]
    assert Taco().weigh(ServerState(matrix[0]), make_uploads(matrix)).tolist() == [0.5, 0.5]


def test_unequal_steps_are_averaged_with_the_aggregation_weights():
    uploads = make_uploads(torch.ones(3, 2, dtype=torch.float64))
    uploads.steps = torch.tensor([1, 4, 10])
    uploads.aggregation_weights = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    assert uploads.effective_steps == pytest.approx(4)
    torch.testing.assert_close(uploads.per_step(uploads.mean_update), torch.full((2,), 1 / 0.4, dtype=torch.float64))
    uploads.constants = Constants(clients=3, rounds=1, local_steps=10, local_lr=0.1, server_lr=0.2)
    assert uploads.relaxation == pytest.approx(0.5)
