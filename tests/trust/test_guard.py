"""The guard: what is new, and each test by numbers made by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedtaco
from fedtaco import InvalidInput
from fedtaco.experiment import RunOptions
from fedtaco.experiment.config import resolve_config
from fedtaco.experiment.prepared import PreparedRun
from fedtaco.methods import Broadcast, Constants, Expulsion, Scaffold, ServerState, Uploads
from fedtaco.trust import DetectorInput, Guard
from fedtaco.trust.evidence import Evidence
from fedtaco.trust.guard import _explained_by_others

D = 3000


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# What is new


class Rounds:
    """A guard that is shown one round after another."""

    def __init__(self, guard=None, clients=6):
        self.guard = guard or Guard()
        self.constants = Constants(clients=clients, rounds=50, local_steps=1, local_lr=0.1)
        self.memory = self.guard.initial_memory(torch.zeros(D), self.constants)
        self.number = 0

    def case(self, start, matrix, clients=None, vectors=None):
        count = len(matrix)
        uploads = Uploads(
            constants=self.constants,
            clients=torch.arange(count) if clients is None else torch.tensor(clients),
            vectors={"update": matrix},
            steps=torch.ones(count, dtype=torch.int64),
            shares=torch.full((count,), 1 / count),
        )
        sent = Broadcast(start, vectors=vectors or {})
        return DetectorInput(sent, uploads.clients, uploads, self.number, partial_participation=clients is not None)

    def show(self, start, matrix, clients=None, vectors=None):
        self.number += 1
        verdict = self.guard.judge(self.memory, self.case(start, matrix, clients, vectors))
        self.memory = verdict.memory
        return verdict


def trained(count, seed):
    """Uploads with something in common."""
    return noise(D, seed=seed) + 0.5 * noise(count, D, seed=seed + 1)


def found_in(verdict):
    return {decision.client: decision.test for decision in verdict.decisions}


def test_copies_mixtures_and_what_was_sent_are_found():
    starts = noise(5, D, seed=3)
    rounds = Rounds(clients=8)
    for number in range(4):
        assert found_in(rounds.show(starts[number], trained(8, 10 * number))) == {}
    moves = starts[:-1] - starts[1:]
    direction = noise(D, seed=4)
    matrix = trained(8, 99)
    matrix[0] = moves[3]
    matrix[1] = -0.3 * moves[3]
    matrix[2] = moves[3] + 2 * moves[2] - moves[1]
    matrix[3] = 5 * direction + moves[3]
    matrix[4] = moves[0]
    matrix[5] = matrix[5] + 100 * moves[3]
    verdict = rounds.show(starts[4], matrix, vectors={"direction": direction})
    assert found_in(verdict) == dict.fromkeys(range(5), "copy")
    assert verdict.dropped.tolist() == [True] * 5 + [False] * 3


def test_the_new_share_is_that_outside_the_span():
    start, move, own = noise(D, seed=1), noise(D, seed=2), noise(D, seed=3)
    own -= (own @ move) / (move @ move) * move
    rounds = Rounds(clients=1)
    rounds.show(start, own[None])
    rounds.number += 1
    upload = 3 * move / move.norm() + 4 * own / own.norm()
    evidence = Evidence.of(rounds.memory, rounds.case(start - move, upload[None]))
    assert float(evidence.new_share[0]) == pytest.approx(16 / 25)
    torch.testing.assert_close(evidence.new[0], own / own.norm())


def test_a_client_that_was_absent_is_held_against_the_starts_it_saw():
    starts, rounds = noise(6, D, seed=3), Rounds(clients=9)
    rounds.show(starts[0], trained(5, 0), clients=[0, 1, 2, 3, 4])
    for number in range(1, 5):
        rounds.show(starts[number], trained(5, number), clients=[4, 5, 6, 7, 8])
    matrix = trained(5, 50)
    matrix[0] = starts[0] - starts[5]
    matrix[4] = starts[0] - starts[5]
    assert found_in(rounds.show(starts[5], matrix, clients=[0, 1, 2, 3, 4])) == {0: "copy", 4: "copy"}


def test_zeros_are_found_where_others_are_not():
    matrix = trained(5, 0)
    matrix[2] = 0
    assert found_in(Rounds().show(torch.zeros(D), matrix)) == {2: "zero"}
    assert found_in(Rounds().show(torch.zeros(D), torch.zeros(5, D))) == {}
    matrix[:4] = 0
    assert found_in(Rounds().show(torch.zeros(D), matrix)) == dict.fromkeys(range(4), "zero")


def test_replicas_are_found_and_likeness_is_not():
    matrix = trained(6, 0)
    shared = noise(D, seed=8)
    matrix[1], matrix[4] = shared, -0.0 + shared
    matrix[2] = matrix[0] + 1e-2 * noise(D, seed=9)
    verdict = Rounds().show(torch.zeros(D), matrix)
    assert found_in(verdict) == {1: "replica", 4: "replica"}
    assert {decision.client: decision.reason for decision in verdict.decisions}[1].endswith("client 4's too")


def test_explained_is_the_regression_on_the_others():
    rows = trained(5, 0)[:, :50]
    rows /= rows.norm(dim=1, keepdim=True)
    for row in range(5):
        others = np.delete(rows.numpy(), row, axis=0).T
        _, left, _, _ = np.linalg.lstsq(others, rows[row].numpy(), rcond=None)
        assert float(_explained_by_others(rows)[row]) == pytest.approx(1 - left[0], abs=1e-4)


def test_noise_has_nothing_in_common():
    matrix = torch.cat([trained(5, 0), noise(2, D, seed=5)])
    verdict = Rounds(clients=7).show(torch.zeros(D), matrix)
    assert found_in(verdict) == {5: "content", 6: "content"}
    assert all(score["explained"] > 0.5 for score in verdict.scores[:5])
    threshold = verdict.decisions[0].threshold
    assert threshold == pytest.approx((6 + 10 * 12**0.5) / D)


def test_a_loner_is_known_by_its_own_last_upload():
    """Label skew may leave a client alone; once it was found to have content, it agrees with itself."""
    own, rounds = noise(D, seed=77), Rounds(Guard(max_strikes=9), clients=7)
    for number in range(3):
        loner = own + 0.5 * noise(D, seed=500 + number)
        common = 0.0 if number else trained(1, 0)[0]
        matrix = torch.cat([trained(6, 10 * number), (loner + common)[None]])
        assert found_in(rounds.show(noise(D, seed=200 + number), matrix)) == {}
    stranger = torch.cat([trained(6, 90), noise(1, D, seed=600)])
    assert found_in(rounds.show(noise(D, seed=300), stranger)) == {6: "content"}


def test_the_same_noise_again_and_again_is_never_taken_for_an_own_direction():
    frozen, rounds = noise(D, seed=77), Rounds(Guard(max_strikes=9), clients=7)
    for number in range(4):
        matrix = torch.cat([trained(6, 10 * number), frozen[None]])
        assert found_in(rounds.show(noise(D, seed=200 + number), matrix)) == {6: "content"}


def test_few_clients_are_judged_once_enough_was_seen_of_them():
    """Among four uploads nobody is left out at first; what had content is remembered, and noise stands apart then."""
    rounds = Rounds(clients=8)
    for number, cohort in enumerate(([0, 1, 2, 3], [4, 5, 6, 3], [0, 1, 2, 3])):
        matrix = torch.cat([trained(3, 10 * number), noise(1, D, seed=60 + number)])
        common = noise(D, seed=0)
        matrix[:3] += common
        found = found_in(rounds.show(noise(D, seed=200 + number), matrix, clients=cohort))
        assert found == ({} if number == 0 else {3: "content"})


def test_a_copy_after_a_broken_upload_is_found():
    """Whoever was asked has seen the starting point, whatever became of the upload."""
    starts, rounds = noise(3, D, seed=3), Rounds(clients=8)
    rounds.show(starts[0], trained(8, 0))
    rounds.number += 1
    seven = rounds.case(starts[1], trained(7, 20))
    asked = DetectorInput(seven.broadcast, torch.arange(8), seven.uploads, rounds.number, partial_participation=False)
    rounds.memory = rounds.guard.judge(rounds.memory, asked).memory
    matrix = trained(8, 40)
    matrix[7] = starts[1] - starts[2]
    assert found_in(rounds.show(starts[2], matrix)) == {7: "copy"}


def test_many_uploads_are_judged_in_parts():
    rounds = Rounds(clients=300)
    matrix = trained(300, 0)
    matrix[7], matrix[290] = noise(D, seed=5), noise(D, seed=6)
    matrix[150], matrix[299] = noise(D, seed=8), noise(D, seed=8)
    matrix[20] = matrix[21] + 0.01 * matrix[21].norm() * noise(D, seed=9) / D**0.5
    assert found_in(rounds.show(torch.zeros(D), matrix)) == {
        7: "content",
        150: "replica",
        290: "content",
        299: "replica",
    }


def test_the_last_of_many_clients_is_held_against_its_own_last_upload_too():
    own, rounds = noise(D, seed=77), Rounds(Guard(max_strikes=9), clients=300)
    for number in range(3):
        matrix = trained(300, 10 * number)
        matrix[7] = noise(D, seed=700 + number)
        matrix[299] = own + 0.5 * noise(D, seed=500 + number) + (0.0 if number else trained(1, 0)[0])
        assert found_in(rounds.show(noise(D, seed=200 + number), matrix)) == {7: "content"}


def test_only_starts_that_someone_may_copy_from_are_kept():
    always, at_times = Rounds(clients=8), Rounds(clients=8)
    for number in range(30):
        always.show(noise(D, seed=number), trained(8, number))
        at_times.show(noise(D, seed=number), trained(4, number), clients=[0, 1, 2, 3] if number % 10 else [4, 5, 6, 7])
    assert always.memory["rounds"].tolist() == list(range(11, 31))
    assert at_times.memory["rounds"].tolist() == [1, *range(9, 31)]


def test_a_short_honest_upload_is_not_zero():
    matrix = trained(8, 0)
    matrix[3] *= 1e-4
    assert found_in(Rounds(clients=8).show(torch.zeros(D), matrix)) == {}


def test_nearly_equal_moves_are_known_both():
    starts = torch.zeros(3, D, dtype=torch.float64)
    starts[1] = noise(D, seed=1)
    starts[2] = 2 * starts[1] + 1e-3 * noise(D, seed=2)
    rounds = Rounds(clients=8)
    rounds.show(starts[0], trained(8, 10))
    rounds.show(starts[1], trained(8, 20))
    matrix = trained(8, 30)
    matrix[0] = (starts[0] - starts[1]) - (starts[1] - starts[2])
    assert found_in(rounds.show(starts[2], matrix)) == {0: "copy"}


def test_what_evades_the_guard():
    """Said in docs/freeloaders.md: an honest upload sent again, and one client's work sent by several with noise."""
    rounds = Rounds(clients=8)
    matrix = trained(8, 0)
    assert found_in(rounds.show(noise(D, seed=200), matrix)) == {}
    again = trained(8, 10)
    again[5] = matrix[5]
    again[3:5] = again[2] + 0.5 * noise(2, D, seed=30)
    assert found_in(rounds.show(noise(D, seed=201), again)) == {}


def test_noise_rates_stay_below_the_threshold():
    """Of 2,000 uploads of noise not one is taken for content."""
    rounds = Rounds(Guard(max_strikes=1000), clients=24)
    for number in range(100):
        matrix = torch.cat([trained(4, 1000 + 2 * number), noise(20, D, seed=number)])
        found = found_in(rounds.show(noise(D, seed=5000 + number), matrix))
        assert sorted(found) == list(range(4, 24))


def test_too_few_uploads_and_too_small_models_are_not_judged_by_content():
    assert found_in(Rounds().show(torch.zeros(D), noise(3, D))) == {}
    small = Rounds()
    small.memory = small.guard.initial_memory(torch.zeros(49), small.constants)
    assert found_in(small.show(torch.zeros(49), noise(6, 49))) == {}


def test_what_cannot_be_judged_is_left_out():
    matrix = trained(6, 0)
    matrix[3] = 1e200
    verdict = Rounds().show(torch.zeros(D), matrix)
    assert found_in(verdict) == {3: "finite"}
    assert verdict.dropped.tolist() == [False] * 3 + [True] + [False] * 2


# Strikes, and who stays


def test_expelled_after_some_strikes_that_need_not_follow_each_other():
    rounds = Rounds(clients=8)
    for number, freeloads in enumerate([True, False, True, False, True], 1):
        matrix = trained(8, 10 * number)
        if freeloads:
            matrix[6] = 0
        actions = {one.client: one.action for one in rounds.show(noise(D, seed=number), matrix).decisions}
        assert actions == ({} if not freeloads else {6: "expelled" if number == 5 else "left out"})
    assert torch.nonzero(rounds.memory["expelled"]).flatten().tolist() == [6]


def test_whoever_is_due_and_may_not_be_expelled_stays_left_out():
    rounds = Rounds(Guard(max_strikes=1), clients=3)
    matrix = trained(3, 0)
    matrix[:2] = 0
    rounds.show(torch.zeros(D), matrix)
    verdict = rounds.show(noise(D, seed=1), trained(2, 10), clients=[1, 2])
    assert [(one.client, one.test, one.action) for one in verdict.decisions] == [(1, "strikes", "left out")]


@pytest.mark.parametrize(("clients", "riders", "most"), [(10, 6, 4), (9, 5, 4), (3, 2, 1), (2, 1, 0), (20, 8, 8)])
def test_half_of_the_clients_are_never_expelled(clients, riders, most):
    rounds = Rounds(Guard(max_strikes=1), clients=clients)
    matrix = trained(clients, 0)
    matrix[:riders] = 0
    verdict = rounds.show(torch.zeros(D), matrix)
    assert int(rounds.memory["expelled"].sum()) == most
    assert verdict.dropped[:riders].all()


def test_nobody_is_left_out_where_all_are_suspicious():
    rounds, starts = Rounds(), noise(2, D)
    rounds.show(starts[0], trained(6, 0))
    verdict = rounds.show(starts[1], (starts[0] - starts[1]).expand(6, -1).clone())
    assert not verdict.dropped.any()
    assert {decision.action for decision in verdict.decisions} == {"spared"}
    assert not verdict.memory["strikes"].any()
    broken = (starts[0] - starts[1]).repeat(6, 1)
    broken[2] = torch.nan
    verdict = Rounds().show(starts[1], broken)
    assert verdict.dropped.tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("features", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("method", ["fedavg", "taco", "scaffold"])
def test_honest_clients_of_tiny_models_are_left_alone(method, features):
    draw = torch.Generator().manual_seed(features)
    clients = [
        (torch.randn(40, features, generator=draw) + i % 3, torch.randint(0, 2, (40,), generator=draw))
        for i in range(10)
    ]
    model = torch.nn.Linear(features, 2)
    result = fedtaco.train(model, clients, method=method, rounds=12, local_steps=5, detector="guard")
    assert not any(record.decisions for record in result.history)


def test_scaffolds_variate_becomes_the_mean_of_those_that_are_left():
    variates = noise(5, 3)
    server = ServerState(torch.zeros(3), {"variate": variates.mean(0)})
    memories = {client: {"variate": variates[client]} for client in (1, 4)}
    after = Scaffold().remove_clients(server, Expulsion(torch.tensor([1, 4]), 5, memories))
    torch.testing.assert_close(after.memory["variate"], variates[[0, 2, 3]].mean(0))


@pytest.mark.parametrize("behaviour", ["zero", "replay:late", "gaussian"])
def test_scaffolds_variate_stays_the_mean_of_the_members(behaviour):
    config = resolve_config(
        method="scaffold", rounds=9, local_steps=4, clients=8, freeloaders=3, behaviour=behaviour, detector="guard"
    )
    simulator = PreparedRun.prepare(config, RunOptions(), None).simulator
    state = list(simulator.rounds(simulator.initial_state()))[-1].state
    members = [client for client in range(8) if not state.trust["expelled"][client]]
    assert len(members) == 5
    mean = torch.stack([state.memories[client]["variate"] for client in members]).mean(0)
    torch.testing.assert_close(state.server.memory["variate"], mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [{"copy": -1.0}, {"copy": 2.0}, {"max_strikes": 0}, {"content": -3.0}, {"replica": 2}]
)
def test_thresholds_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInput, match=rf"guard\.{next(iter(wrong))} is"):
        Guard(**wrong)
