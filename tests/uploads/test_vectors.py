"""Uploaded vectors give sums, dot products and blocks of rows, and no whole matrix."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput
from fedtaco.uploads import UploadedVectors, geometry_of, vectors

MATRIX = torch.randn(9, 5, generator=torch.Generator().manual_seed(2))
CHANGES = torch.tensor([[2.0**24], [1.0], [1.0]])


@pytest.fixture
def uploaded():
    return UploadedVectors({"update": MATRIX, "change": CHANGES})


def test_totals_are_added_up_in_float64(uploaded):
    """In float32, 2**24 + 1 is 2**24."""
    assert uploaded.total("change").tolist() == [2**24 + 2]


def test_sums_and_products_of_some_rows(uploaded):
    chosen, weights = [7, 2, 4], torch.tensor([0.5, 0.3, 0.2])
    torch.testing.assert_close(uploaded.weighted_sum(weights, rows=chosen), weights @ MATRIX[chosen])
    expected = (MATRIX[chosen] @ MATRIX[chosen].T).double()
    torch.testing.assert_close(uploaded.gram_matrix(rows=chosen), expected)
    assert torch.equal(uploaded.gram_matrix().diagonal()[chosen], uploaded.gram_matrix(rows=chosen).diagonal())


def test_products_with_a_vector(uploaded):
    products = uploaded.dots(MATRIX[3])
    assert products.dtype == torch.float64
    torch.testing.assert_close(products.float(), MATRIX @ MATRIX[3])
    assert uploaded.geometry("change").norms.tolist() == geometry_of(CHANGES).norms.tolist()


@pytest.mark.parametrize(("size", "blocks"), [(1, 9), (4, 3), (16, 1)])
def test_blocks_contain_every_row_once_and_in_order(uploaded, monkeypatch, size, blocks):
    monkeypatch.setattr(vectors, "BLOCK_ROWS", size)
    found = list(uploaded.blocks())
    assert len(found) == blocks
    assert torch.equal(torch.cat([block for _, block in found]), MATRIX)
    assert all(torch.equal(MATRIX[rows], block) for rows, block in found)


@pytest.mark.parametrize(
    "take",
    [lambda own: own["update"], lambda own: own.get("update"), lambda own: dict(own.items()), list],
    ids=["item", "get", "items", "iteration"],
)
def test_nobody_gets_a_whole_matrix(uploaded, take):
    with pytest.raises(InvalidInput, match=r"no whole matrix; call uploads.average\(name\), or total, .* blocks"):
        take(uploaded)


@pytest.mark.parametrize("method", ["foolsgold-original", "taco"])
def test_runs_do_not_depend_on_the_size_of_blocks(method, monkeypatch):
    def run(size):
        monkeypatch.setattr(vectors, "BLOCK_ROWS", size)
        settings = {"dataset": "digits", "model": "mlp:160", "clients": 10, "rounds": 4, "local_steps": 2}
        adversaries = {"freeloaders": 3, "behaviour": "replay-noise", "detector": "guard"}
        return fedtaco.run(method, **settings, **adversaries, diagnose=True)

    whole, parts = run(10), run(3)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert any(record.decisions for record in whole.history)
    assert [record.decisions for record in whole.history] == [record.decisions for record in parts.history]
    assert [record.scores for record in whole.history.clients] == [record.scores for record in parts.history.clients]
    for one, other in zip(whole.diagnostics, parts.diagnostics, strict=True):
        assert [client.drift for client in one.clients] == pytest.approx([client.drift for client in other.clients])
