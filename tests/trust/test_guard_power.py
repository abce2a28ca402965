"""Where the guard's tests cannot tell honest clients from freeloaders, nobody gets a strike."""

from __future__ import annotations

import math

import pytest
import torch
from guard_rounds import D, GuardRounds, failed_tests, noise, trained

import fedtaco
from fedtaco.trust import Guard
from fedtaco.trust.evidence import Evidence
from fedtaco.trust.profile import Profile

# Honest uploads that others do not explain


def hospitals(seed):
    """Return the samples of four clients of very different sizes: 17 features, three classes."""
    generator = torch.Generator().manual_seed(seed)
    directions, clients = torch.randn(17, 3, generator=generator), []
    for size in (60, 160, 280, 600):
        x = torch.randn(size, 17, generator=generator) + 0.5 * torch.randn(17, generator=generator)
        clients.append((x, (x @ directions + 2 * torch.randn(size, 3, generator=generator)).argmax(1)))
    return clients


@pytest.mark.parametrize("seed", range(2))
def test_the_largest_of_four_hospitals_is_not_suspected(seed):
    def model():
        return torch.nn.Sequential(torch.nn.Linear(17, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))

    assert sum(parameter.numel() for parameter in model().parameters()) == 1347
    settings = {"rounds": 40, "local_steps": 10, "batch_size": 16, "local_lr": 0.2, "seed": seed}
    result = fedtaco.train(model, hospitals(seed), method="taco", detector="guard", **settings)
    assert any(record.scores["explained"] < 0.033 for record in result.history.clients if record.client == 3)
    assert not any(decision.test == "content" for record in result.history for decision in record.decisions)


def rounds_before(scale):
    """Return rounds in which six of eight clients have trained twice, with uploads spread over coordinates unevenly."""
    rounds = GuardRounds(Guard(max_strikes=9), clients=8)
    for number in range(2):
        matrix = scale * trained(8, 10 * number)
        assert failed_tests(rounds.judge(noise(D, seed=200 + number), matrix)) == {}
    return rounds


def test_unexplained_uploads_are_noise_only_if_their_sizes_are():
    """Signs are random in both uploads; one changes the coordinates as much as training does."""
    scale = noise(D, seed=50).abs()
    matrix = scale * trained(8, 90)
    matrix[6] = scale * noise(D, seed=60)
    matrix[7] = noise(D, seed=61)
    verdict = rounds_before(scale).judge(noise(D, seed=300), matrix)
    assert failed_tests(verdict) == {7: "content"}
    by_chance = (14 + 10 * math.sqrt(28)) / D  # compared with 7 uploads of this round and 8 earlier ones
    assert max(verdict.scores[row]["explained"] for row in (6, 7)) < by_chance * 15 / 14
    assert verdict.scores[6]["profile"] > 0.5
    assert abs(verdict.scores[7]["profile"]) < 4 / math.sqrt(D - 1)


def test_own_last_upload_is_enough_to_know_how_a_client_trains():
    """A client may change other coordinates than all others; then it is compared with itself."""
    common = 0.1 + (torch.arange(D) < D / 2).double()
    own, rounds = common.flip(0), rounds_before(common)
    matrix = common * trained(8, 80)
    matrix[5:7] = own * trained(2, 70)
    assert failed_tests(rounds.judge(noise(D, seed=299), matrix)) == {}
    matrix = common * trained(8, 90)
    matrix[6:] = own * noise(2, D, seed=60)
    assert failed_tests(rounds.judge(noise(D, seed=300), matrix)) == {7: "content"}


def test_nobody_is_suspected_if_trained_uploads_are_hardly_explained_either():
    common = noise(D, seed=1)
    rounds = GuardRounds(Guard(max_strikes=9), clients=8)
    assert failed_tests(rounds.judge(noise(D, seed=200), common + 0.5 * noise(8, D, seed=2))) == {}
    for seed, strength in enumerate((0.15, 0.5)):
        weak = strength * common + noise(8, D, seed=30 + seed)
        weak[7] = noise(D, seed=40 + seed)
        verdict = rounds.judge(noise(D, seed=201 + seed), weak)
        explained = sorted(score["explained"] for score in verdict.scores)
        assert explained[0] < (14 + 10 * math.sqrt(28)) / D
        assert failed_tests(verdict) == ({} if strength < 0.3 else {7: "content"})


@pytest.mark.parametrize(("parameters", "failed"), [(1000, {}), (1200, {7: "content"})])
def test_models_with_few_parameters_are_not_judged_by_content(parameters, failed):
    rounds = GuardRounds(clients=8)
    rounds.memory = rounds.guard.initial_memory(torch.zeros(parameters), rounds.constants)
    matrix = torch.cat([trained(7, 0), noise(1, D, seed=5)])[:, :parameters]
    assert failed_tests(rounds.judge(torch.zeros(parameters), matrix)) == failed


def test_entries_of_sketches_that_add_more_coordinates_do_not_look_trained():
    """With 12,000 parameters, some entries of a sketch are sums of two coordinates, in noise as in honest uploads."""
    length = 12_000
    rounds = GuardRounds(clients=40)
    rounds.memory = rounds.guard.initial_memory(torch.zeros(length), rounds.constants)
    given = rounds.make_input(torch.zeros(length), noise(40, length, seed=1))
    profile = Profile.of(Evidence.of(rounds.memory, given), list(range(20)))
    correlations = [profile.correlation(row) for row in range(20, 40)]
    assert max(correlations) < profile.by_chance
    assert abs(sum(correlations)) / 20 < 1.5 / math.sqrt(8190)


# Clients that fit their samples


@pytest.mark.parametrize(
    ("has_trained", "loss", "strikes"),
    [(True, 1e-6, 0), (True, 0.5, 2), (True, math.nan, 2), (False, 1e-6, 2), (True, math.inf, 2)],
)
def test_zeros_and_copies_of_a_client_that_fits_its_samples_are_dropped_without_a_strike(has_trained, loss, strikes):
    starts, rounds = noise(3, D, seed=3), GuardRounds(clients=8)
    losses = [1.0] * 7 + [loss]
    matrix = trained(8, 0)
    if not has_trained:
        matrix[7] = noise(D, seed=9)
    first = rounds.judge(starts[0], matrix, losses=[1.0] * 8)
    before = int(first.memory["strikes"][7])
    for number, nothing_new in enumerate((torch.zeros(D), starts[0] - starts[2]), 1):
        matrix = trained(8, 10 * number)
        matrix[7] = nothing_new.to(matrix)
        verdict = rounds.judge(starts[number], matrix, losses=losses)
        assert failed_tests(verdict) == {7: "zero" if number == 1 else "copy"}
        assert verdict.dropped.tolist() == [False] * 7 + [True]
        (decision,) = verdict.decisions
        assert ("no strike" in decision.reason) == (strikes == 0)
    assert int(rounds.memory["strikes"][7]) - before == strikes


@pytest.mark.parametrize(("length", "strikes"), [(1e-5, 0), (1.0, 1)])
def test_noise_of_a_client_that_fits_its_samples_may_be_rounding_errors_if_it_is_short(length, strikes):
    rounds = GuardRounds(clients=8)
    rounds.judge(noise(D, seed=200), trained(8, 0), losses=[1.0] * 8)
    matrix = trained(8, 10)
    matrix[7] = length * noise(D, seed=9)
    verdict = rounds.judge(noise(D, seed=201), matrix, losses=[1.0] * 7 + [0.0])
    assert failed_tests(verdict) == {7: "content"}
    assert verdict.dropped.tolist() == [False] * 7 + [True]
    assert verdict.memory["strikes"].tolist() == [0] * 7 + [strikes]


@pytest.mark.parametrize(("seed", "local_lr"), [(0, 0.5), (1, 0.5), (1, 1.0)])
def test_a_client_without_a_gradient_is_not_expelled(seed, local_lr):
    """One client has a single label, far from all other samples; it fits it soon, so that its uploads vanish."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 40, 20, generator=generator)
    clients = [(x[client], torch.randint(0, 2, (40,), generator=generator)) for client in range(4)]
    clients.append((x[4] + 6, torch.zeros(40, dtype=torch.int64)))
    settings = {"rounds": 12, "local_steps": 20, "local_lr": local_lr, "batch_size": 20}
    result = fedtaco.train(lambda: torch.nn.Linear(20, 90), clients, method="fedavg", detector="guard", **settings)
    decisions = [decision for record in result.history for decision in record.decisions]
    assert sum(decision.client == 4 and decision.test in ("zero", "content") for decision in decisions) >= 3
    assert not any(record.strikes for record in result.history.clients)
