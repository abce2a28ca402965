"""Equal uploads: alone they are no reason to suspect clients, but they do not speak for each other either."""

from __future__ import annotations

import pytest
import torch
from guard_rounds import D, GuardRounds, failed_tests, noise, trained

import fedtaco
from fedtaco.codecs.topk import TopK


def clients_with_twins(seed):
    """Return the samples of five clients, of which the last two hold the same ones."""
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(20, generator=generator)
    inputs = [torch.randn(50, 20, generator=generator) for _ in range(4)]
    return [(x, (x @ direction > 0).long()) for x in [*inputs, inputs[-1]]]


@pytest.mark.parametrize("method", ["fedavg", "taco", "scaffold"])
def test_honest_clients_with_the_same_samples_and_full_batches_stay(method):
    """With full batches their uploads are equal in every round."""
    clients = clients_with_twins(seed=1)
    settings = {"rounds": 8, "local_steps": 5, "local_lr": 0.1, "batch_size": 50}
    result = fedtaco.train(lambda: torch.nn.Linear(20, 90), clients, method=method, detector="guard", **settings)
    twins = [record for record in result.history.clients if record.client in (3, 4)]
    assert max(record.scores["nearest"] for record in twins) < 1e-6
    assert not any(record.decisions for record in result.history)


def test_scores_tell_how_near_the_nearest_upload_is():
    matrix = trained(6, 0)
    matrix[4] = -0.0 + matrix[1]
    verdict = GuardRounds().judge(torch.zeros(D), matrix)
    assert failed_tests(verdict) == {}
    nearest = [score["nearest"] for score in verdict.scores]
    assert max(nearest[1], nearest[4]) < 1e-12
    assert min(nearest[row] for row in (0, 2, 3, 5)) > 0.01
    assert "nearest" not in GuardRounds().judge(torch.zeros(D), trained(1, 0)).scores[0]


@pytest.mark.parametrize("own_noise", [0.0, 5e-4])
def test_noise_that_several_clients_send_does_not_speak_for_itself(own_noise):
    rounds = GuardRounds(clients=20)
    matrix = torch.cat([trained(12, 0), noise(D, seed=5) + own_noise * noise(8, D, seed=6)])
    assert failed_tests(rounds.judge(torch.zeros(D), matrix)) == dict.fromkeys(range(12, 20), "content")


def test_equal_uploads_are_explained_by_those_of_other_clients():
    rounds, shared = GuardRounds(clients=12), trained(1, 0)[0]
    matrix = torch.cat([noise(D, seed=0) + 0.5 * noise(9, D, seed=1), shared.expand(3, -1)])
    verdict = rounds.judge(torch.zeros(D), matrix)
    assert failed_tests(verdict) == {}
    assert len({verdict.scores[row]["explained"] for row in (9, 10, 11)}) == 1


def test_equal_compressed_uploads_are_suspicious_if_the_clients_did_not_train_at_first():
    """A copy has content once it is compressed, but in the first round there is nothing to copy."""
    rounds = GuardRounds(clients=10, codec=TopK(0.5))
    for number in range(3):
        matrix = trained(10, 20 * number)
        matrix[4] = matrix[5]
        if number == 0:
            matrix[8:] = 0
        else:
            matrix[8] = matrix[9]
        failed = failed_tests(rounds.judge(noise(D, seed=200 + number), matrix))
        assert failed == dict.fromkeys([8, 9], "replica" if number else "zero")
