"""The results of a cohort: rows, shares, steps and buffers stay aligned with their clients."""

from __future__ import annotations

import pytest
import torch

from fedtaco.cohort import ClientJob, ClientResult, CohortResults, describe_clients, normalize

COHORT = [7, 2, 9, 4]
"""Clients in the order of their rows; everything else about a client is derived from its number."""
JOBS = [ClientJob(row, client, steps=10 * client, memory={}, count=client) for row, client in enumerate(COHORT)]


def filled_results(order=(0, 1, 2, 3)):
    """Return results to which the clients were added in an order of their rows."""
    results = CohortResults.empty([JOBS[row] for row in order])
    for row in order:
        job = JOBS[row]
        upload = {"update": torch.full((3,), float(job.client)), "variate": torch.full((2,), -float(job.client))}
        memory = {"seen": torch.tensor([job.client])}
        result = ClientResult(upload, memory, torch.tensor([job.client / 2]), seconds=job.client / 10)
        results.put(job, result)
    return results


def assert_aligned(results, clients):
    """Assert that each row belongs to the client in that position."""
    numbers = torch.tensor(clients)
    assert results.clients.tolist() == clients
    assert results.steps.tolist() == [10 * client for client in clients]
    assert torch.equal(results.vectors["update"], numbers[:, None].expand(-1, 3).float())
    assert torch.equal(results.vectors["variate"], -numbers[:, None].expand(-1, 2).float())
    assert torch.equal(results.buffers, numbers[:, None] / 2)
    torch.testing.assert_close(results.shares, numbers.double() / numbers.sum())


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_results_may_be_put_in_any_order(order):
    results = filled_results(order)
    assert results.cohort == COHORT
    assert_aligned(results, COHORT)
    assert {client: int(memory["seen"]) for client, memory in results.memories.items()} == {c: c for c in COHORT}
    assert results.seconds == {client: client / 10 for client in COHORT}
    assert results.dropped == {}


@pytest.mark.parametrize(
    ("rows", "left"),
    [([0], [2, 9, 4]), ([1, 3], [7, 9]), ([3], [7, 2, 9]), ([0, 1, 3], [9]), ([], COHORT), ([0, 1, 2, 3], [])],
)
def test_dropped_rows_leave_the_others_aligned(rows, left):
    results = filled_results()
    results.drop({row: f"reason {COHORT[row]}" for row in rows})
    assert_aligned(results, left)
    assert results.cohort == COHORT
    assert results.dropped == {client: f"reason {client}" for client in COHORT if client not in left}


def test_rows_can_be_dropped_again():
    results = filled_results()
    results.drop({0: "not finite"})
    results.drop({1: "zero"})
    assert_aligned(results, [2, 4])
    assert results.dropped == {7: "not finite", 9: "zero"}


def test_dropping_makes_no_second_copy_of_the_uploads():
    results = filled_results()
    before = results.vectors["update"].data_ptr()
    results.drop({0: "not finite"})
    assert results.vectors["update"].data_ptr() == before


def test_shares_are_normalized_counts():
    shares = normalize([1, 2, 5])
    assert shares.dtype == torch.float64
    assert shares.tolist() == [0.125, 0.25, 0.625]
    assert float(normalize([1e12, 1, 3]).sum()) == 1


def test_clients_are_named_for_messages():
    assert describe_clients(JOBS[:1]) == "client 7"
    assert describe_clients(JOBS[1:3]) == "clients 2, 9"
