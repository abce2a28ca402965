"""Strikes: when the guard expels a client, and how many clients stay."""

from __future__ import annotations

import pytest
import torch
from guard_rounds import D, GuardRounds, noise, trained

from fedtaco.trust import Guard


def test_client_is_expelled_at_the_third_strike_in_any_rounds():
    rounds = GuardRounds(clients=8)
    for number, freeloads in enumerate([True, False, True, False, True], 1):
        matrix = trained(8, 10 * number)
        if freeloads:
            matrix[6] = 0
        actions = {one.client: one.action for one in rounds.judge(noise(D, seed=number), matrix).decisions}
        assert actions == ({} if not freeloads else {6: "expelled" if number == 5 else "dropped"})
    assert torch.nonzero(rounds.expelled).flatten().tolist() == [6]


@pytest.mark.parametrize(
    ("clients", "freeloaders", "expelled"), [(10, 6, 4), (9, 5, 4), (3, 2, 1), (2, 1, 0), (20, 8, 8)]
)
def test_fewer_than_half_of_the_clients_are_expelled(clients, freeloaders, expelled):
    rounds = GuardRounds(Guard(max_strikes=1), clients=clients)
    matrix = trained(clients, 0)
    matrix[:freeloaders] = 0
    verdict = rounds.judge(torch.zeros(D), matrix)
    assert int(rounds.expelled.sum()) == expelled
    assert verdict.dropped[:freeloaders].all()


def test_uploads_of_clients_that_cannot_be_expelled_are_dropped():
    rounds = GuardRounds(Guard(max_strikes=1), clients=3)
    matrix = trained(3, 0)
    matrix[:2] = 0
    rounds.judge(torch.zeros(D), matrix)
    verdict = rounds.judge(noise(D, seed=1), trained(2, 10), clients=[1, 2])
    assert [(one.client, one.test, one.action) for one in verdict.decisions] == [(1, "strikes", "dropped")]


def test_nothing_is_dropped_if_all_uploads_are_suspicious():
    rounds, starts = GuardRounds(), noise(2, D)
    rounds.judge(starts[0], trained(6, 0))
    verdict = rounds.judge(starts[1], (starts[0] - starts[1]).expand(6, -1).clone())
    assert not verdict.dropped.any()
    assert {decision.action for decision in verdict.decisions} == {"spared"}
    assert not verdict.memory["strikes"].any()
    with_nan = (starts[0] - starts[1]).repeat(6, 1)
    with_nan[2] = torch.nan
    verdict = GuardRounds().judge(starts[1], with_nan)
    assert verdict.dropped.tolist() == [False, False, True, False, False, False]


def test_rounds_that_each_client_took_part_in_are_counted():
    rounds = GuardRounds(clients=4)
    rounds.judge(torch.zeros(D), trained(4, 0))
    rounds.judge(noise(D, seed=1), trained(2, 10), clients=[1, 3])
    assert rounds.memory["seen"].tolist() == [1, 2, 1, 2]
