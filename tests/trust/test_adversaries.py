"""Which clients misbehave, and what they remember."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, strategies as st

from fedtaco.trust import AdversarialClients, choose_clients, parse_behaviour


@given(st.lists(st.sampled_from("ABC"), min_size=1, max_size=40), st.data())
def test_clients_are_chosen_from_each_group_in_proportion_to_its_size(groups, data):
    count = data.draw(st.integers(1, len(groups)))
    chosen = choose_clients(count, groups, seed=data.draw(st.integers(0, 99)))
    assert len(set(chosen)) == count
    for group in set(groups):
        share = groups.count(group) * count / len(groups)
        assert math.floor(share) <= sum(groups[client] == group for client in chosen) <= math.ceil(share)


def test_every_client_may_be_chosen():
    chosen = [client for seed in range(200) for client in choose_clients(2, ["A"] * 3 + ["B"] * 3, seed)]
    assert len(chosen) == 400
    assert min(np.bincount(chosen, minlength=6)) > 40


def test_length_of_the_first_move_is_remembered():
    adversaries = AdversarialClients(frozenset({1, 3}), parse_behaviour("disguised"), seed=0)
    memory = {}
    for start in (torch.zeros(4), torch.tensor([1.0, -1.0, 3.0, -3.0]), torch.full((4,), 100.0)):
        memory = adversaries.remember(start, memory)
    assert memory["first_move"].tolist() == [2.0]
    assert torch.equal(memory["start"], torch.full((4,), 100.0))
