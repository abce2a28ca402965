"""What is new in an upload: copies of anything that the client received are found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from guard_rounds import D, GuardRounds, failed_tests, noise, trained

from fedtaco.local_optimizer import Sgd
from fedtaco.trust.evidence import Evidence


def test_copies_and_mixtures_of_what_was_received_are_found():
    starts = noise(5, D, seed=3)
    rounds = GuardRounds(clients=8)
    for number in range(4):
        assert failed_tests(rounds.judge(starts[number], trained(8, 10 * number))) == {}
    moves = starts[:-1] - starts[1:]
    direction = noise(D, seed=4)
    matrix = trained(8, 99)
    matrix[0] = moves[3]
    matrix[1] = -0.3 * moves[3]
    matrix[2] = moves[3] + 2 * moves[2] - moves[1]
    matrix[3] = 5 * direction + moves[3]
    matrix[4] = moves[0]
    matrix[5] = matrix[5] + 100 * moves[3]
    verdict = rounds.judge(starts[4], matrix, vectors={"direction": direction})
    assert failed_tests(verdict) == dict.fromkeys(range(5), "copy")
    assert verdict.dropped.tolist() == [True] * 5 + [False] * 3


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_copy_of_the_starting_point_is_found_if_the_weights_decay(decay):
    """Uploads then have the starting point in common, so that it would hide noise from the test for content."""
    rounds, start = GuardRounds(clients=8), noise(D, seed=3)
    rounds.constants = replace(rounds.constants, optimizer=Sgd(weight_decay=decay))
    matrix = trained(8, 10) + 0.3 * start
    matrix[0] = 0.3 * start
    matrix[1] = 0.3 * start + noise(D, seed=5)
    assert failed_tests(rounds.judge(start, matrix)) == ({0: "copy", 1: "content"} if decay else {})


def test_new_share_is_the_part_outside_the_span():
    start, move, own = noise(D, seed=1), noise(D, seed=2), noise(D, seed=3)
    own -= (own @ move) / (move @ move) * move
    rounds = GuardRounds(clients=1)
    rounds.judge(start, own[None])
    rounds.round += 1
    upload = 3 * move / move.norm() + 4 * own / own.norm()
    evidence = Evidence.of(rounds.memory, rounds.make_input(start - move, upload[None]))
    assert float(evidence.new_share[0]) == pytest.approx(16 / 25)
    torch.testing.assert_close(evidence.new[0], own / own.norm())


def test_absent_client_is_compared_with_the_starting_points_it_received():
    starts, rounds = noise(6, D, seed=3), GuardRounds(clients=9)
    rounds.judge(starts[0], trained(5, 0), clients=[0, 1, 2, 3, 4])
    for number in range(1, 5):
        rounds.judge(starts[number], trained(5, number), clients=[4, 5, 6, 7, 8])
    matrix = trained(5, 50)
    matrix[0] = starts[0] - starts[5]
    matrix[4] = starts[0] - starts[5]
    assert failed_tests(rounds.judge(starts[5], matrix, clients=[0, 1, 2, 3, 4])) == {0: "copy", 4: "copy"}


def test_copy_after_a_broken_upload_is_found():
    """A client that was asked received the starting point, even if its upload could not be used."""
    starts, rounds = noise(3, D, seed=3), GuardRounds(clients=8)
    rounds.judge(starts[0], trained(8, 0))
    rounds.round += 1
    given = rounds.make_input(starts[1], trained(7, 20))
    asked = replace(given, cohort=torch.arange(8))
    rounds.memory = rounds.guard.judge(rounds.memory, asked).memory
    matrix = trained(8, 40)
    matrix[7] = starts[1] - starts[2]
    assert failed_tests(rounds.judge(starts[2], matrix)) == {7: "copy"}


def test_nearly_parallel_moves_are_both_removed():
    starts = torch.zeros(3, D, dtype=torch.float64)
    starts[1] = noise(D, seed=1)
    starts[2] = 2 * starts[1] + 1e-3 * noise(D, seed=2)
    rounds = GuardRounds(clients=8)
    rounds.judge(starts[0], trained(8, 10))
    rounds.judge(starts[1], trained(8, 20))
    matrix = trained(8, 30)
    matrix[0] = (starts[0] - starts[1]) - (starts[1] - starts[2])
    assert failed_tests(rounds.judge(starts[2], matrix)) == {0: "copy"}


def test_only_starting_points_that_could_be_copied_are_kept():
    every_round, rarely = GuardRounds(clients=8), GuardRounds(clients=8)
    for number in range(30):
        every_round.judge(noise(D, seed=number), trained(8, number))
        cohort = [0, 1, 2, 3] if number % 10 else [4, 5, 6, 7]
        rarely.judge(noise(D, seed=number), trained(4, number), clients=cohort)
    assert every_round.memory["rounds"].tolist() == list(range(11, 31))
    assert rarely.memory["rounds"].tolist() == [1, *range(9, 31)]
