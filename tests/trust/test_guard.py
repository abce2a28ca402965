"""The tests of the guard (zero, content, finite), on uploads written by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from guard_rounds import D, GuardRounds, failed_tests, noise, trained

import fedtaco
from fedtaco import InvalidInput
from fedtaco.trust import Guard
from fedtaco.trust.guard import _explained_by_others


def test_zero_uploads_are_found_if_others_are_not_zero():
    matrix = trained(5, 0)
    matrix[2] = 0
    assert failed_tests(GuardRounds().judge(torch.zeros(D), matrix)) == {2: "zero"}
    assert failed_tests(GuardRounds().judge(torch.zeros(D), torch.zeros(5, D))) == {}
    matrix[:4] = 0
    assert failed_tests(GuardRounds().judge(torch.zeros(D), matrix)) == dict.fromkeys(range(4), "zero")


def test_short_honest_upload_is_not_zero():
    matrix = trained(8, 0)
    matrix[3] *= 1e-4
    assert failed_tests(GuardRounds(clients=8).judge(torch.zeros(D), matrix)) == {}


def test_upload_too_long_to_be_judged_is_dropped():
    matrix = trained(6, 0)
    matrix[3] = 1e200
    verdict = GuardRounds().judge(torch.zeros(D), matrix)
    assert failed_tests(verdict) == {3: "finite"}
    assert verdict.dropped.tolist() == [False] * 3 + [True] + [False] * 2


# The content test


def test_explained_fraction_is_that_of_a_regression_on_the_others():
    rows = trained(5, 0)[:, :50]
    rows /= rows.norm(dim=1, keepdim=True)
    for row in range(5):
        others = np.delete(rows.numpy(), row, axis=0).T
        _, residual, _, _ = np.linalg.lstsq(others, rows[row].numpy(), rcond=None)
        assert float(_explained_by_others(rows)[row]) == pytest.approx(1 - residual[0], abs=1e-4)


def test_noise_has_nothing_in_common_with_other_uploads():
    matrix = torch.cat([trained(5, 0), noise(2, D, seed=5)])
    verdict = GuardRounds(clients=7).judge(torch.zeros(D), matrix)
    assert failed_tests(verdict) == {5: "content", 6: "content"}
    assert all(score["explained"] > 0.5 for score in verdict.scores[:5])
    threshold = verdict.decisions[0].threshold
    assert threshold == pytest.approx((6 + 10 * 12**0.5) / D)


def test_noise_never_passes_in_2000_uploads():
    rounds = GuardRounds(Guard(max_strikes=1000), clients=24)
    for number in range(100):
        matrix = torch.cat([trained(4, 1000 + 2 * number), noise(20, D, seed=number)])
        failed = failed_tests(rounds.judge(noise(D, seed=5000 + number), matrix))
        assert sorted(failed) == list(range(4, 24))


def test_client_unlike_the_others_is_explained_by_its_own_last_upload():
    """Label skew may leave a client alone; once content was found in its upload, the next one resembles that."""
    own, rounds = noise(D, seed=77), GuardRounds(Guard(max_strikes=9), clients=7)
    for number in range(3):
        unlike = own + 0.5 * noise(D, seed=500 + number)
        common = 0.0 if number else trained(1, 0)[0]
        matrix = torch.cat([trained(6, 10 * number), (unlike + common)[None]])
        assert failed_tests(rounds.judge(noise(D, seed=200 + number), matrix)) == {}
    matrix = torch.cat([trained(6, 90), noise(1, D, seed=600)])
    assert failed_tests(rounds.judge(noise(D, seed=300), matrix)) == {6: "content"}


def test_repeated_noise_is_not_explained_by_itself():
    repeated, rounds = noise(D, seed=77), GuardRounds(Guard(max_strikes=9), clients=7)
    for number in range(4):
        matrix = torch.cat([trained(6, 10 * number), repeated[None]])
        assert failed_tests(rounds.judge(noise(D, seed=200 + number), matrix)) == {6: "content"}


def test_small_cohorts_are_judged_once_enough_uploads_are_remembered():
    """Among four uploads none is dropped at first; noise is found once enough earlier uploads had content."""
    rounds = GuardRounds(clients=8)
    for number, cohort in enumerate(([0, 1, 2, 3], [4, 5, 6, 3], [0, 1, 2, 3])):
        matrix = torch.cat([trained(3, 10 * number), noise(1, D, seed=60 + number)])
        matrix[:3] += noise(D, seed=0)
        failed = failed_tests(rounds.judge(noise(D, seed=200 + number), matrix, clients=cohort))
        assert failed == ({} if number == 0 else {3: "content"})


def test_few_uploads_and_small_models_are_not_judged_by_content():
    assert failed_tests(GuardRounds().judge(torch.zeros(D), noise(3, D))) == {}
    small = GuardRounds()
    small.memory = small.guard.initial_memory(torch.zeros(49), small.constants)
    assert failed_tests(small.judge(torch.zeros(49), noise(6, 49))) == {}


def test_many_uploads_are_judged_in_parts():
    rounds = GuardRounds(clients=300)
    matrix = trained(300, 0)
    matrix[7], matrix[290] = noise(D, seed=5), noise(D, seed=6)
    matrix[150], matrix[299] = noise(D, seed=8), noise(D, seed=8)
    assert failed_tests(rounds.judge(torch.zeros(D), matrix)) == dict.fromkeys([7, 150, 290, 299], "content")


def test_last_of_many_clients_is_compared_with_its_own_last_upload():
    own, rounds = noise(D, seed=77), GuardRounds(Guard(max_strikes=9), clients=300)
    for number in range(3):
        matrix = trained(300, 10 * number)
        matrix[7] = noise(D, seed=700 + number)
        matrix[299] = own + 0.5 * noise(D, seed=500 + number) + (0.0 if number else trained(1, 0)[0])
        assert failed_tests(rounds.judge(noise(D, seed=200 + number), matrix)) == {7: "content"}


# Known limits


def test_uploads_that_evade_the_guard():
    """As docs/freeloaders.md states: an honest upload sent again, and one client's upload sent by others with noise."""
    rounds = GuardRounds(clients=8)
    matrix = trained(8, 0)
    assert failed_tests(rounds.judge(noise(D, seed=200), matrix)) == {}
    again = trained(8, 10)
    again[5] = matrix[5]
    again[3:5] = again[2] + 0.5 * noise(2, D, seed=30)
    assert failed_tests(rounds.judge(noise(D, seed=201), again)) == {}


@pytest.mark.parametrize("features", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("method", ["fedavg", "taco", "scaffold"])
def test_honest_clients_of_tiny_models_are_not_suspected(method, features):
    generator = torch.Generator().manual_seed(features)
    clients = [
        (torch.randn(40, features, generator=generator) + i % 3, torch.randint(0, 2, (40,), generator=generator))
        for i in range(10)
    ]
    model = torch.nn.Linear(features, 2)
    torch.nn.init.uniform_(model.weight, -0.5, 0.5, generator=generator)
    torch.nn.init.zeros_(model.bias)
    result = fedtaco.train(model, clients, method=method, rounds=12, local_steps=5, detector="guard")
    assert not any(record.decisions for record in result.history)


@pytest.mark.parametrize(
    "parameters", [{"copy": -1.0}, {"copy": 2.0}, {"max_strikes": 0}, {"content": -3.0}, {"replica": 2}]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(InvalidInput, match=rf"guard\.{next(iter(parameters))} is"):
        Guard(**parameters)
