"""The server's half of a round: who is asked, skipped rounds, and runs that cannot start or continue."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput, Method, RunStopped
from fedtaco.cohort import CohortResults
from fedtaco.methods import FedAvg
from fedtaco.server import Server
from fedtaco.settings.run_spec import RunSpec

CLIENTS = 8


def make_server(cohort_size, seed=0):
    spec = RunSpec.with_defaults(FedAvg(), {"rounds": 9, "seed": seed})
    server = Server(spec, spec.constants(CLIENTS, local_steps=1), cohort_size)
    return server, server.initial_state(torch.ones(3), torch.zeros(0))


def test_cohort_depends_on_seed_and_round_alone():
    server, state = make_server(3)
    cohorts = [server.choose_cohort(replace(state, round=number)).tolist() for number in range(20)]
    assert cohorts == [server.choose_cohort(replace(state, round=number)).tolist() for number in range(20)]
    assert all(cohort == sorted(set(cohort)) and len(cohort) == 3 for cohort in cohorts)
    assert {client for cohort in cohorts for client in cohort} == set(range(CLIENTS))
    other, _ = make_server(3, seed=1)
    assert cohorts != [other.choose_cohort(replace(state, round=number)).tolist() for number in range(20)]


def test_expelled_and_unavailable_clients_are_not_chosen():
    server, state = make_server(4)
    expelled = torch.arange(CLIENTS) < 3
    state = replace(state, expelled=expelled)
    assert server.choose_cohort(state, available=torch.arange(CLIENTS) != 5).tolist() == [3, 4, 6, 7]
    assert server.choose_cohort(state, available=torch.arange(CLIENTS) < 5).tolist() == [3, 4]


def test_skipped_round_keeps_the_model():
    server, state = make_server(4)
    finished = server.skip_round(state, CohortResults.empty([])).finish(1.0, accuracy=None, loss=None)
    assert (finished.state.round, finished.record.round, finished.clients) == (1, 1, [])
    assert finished.state.server is state.server


def test_run_stops_when_every_client_is_expelled():
    """On IID digits every honest α exceeds a low κ, so the paper's rule expels all clients."""
    with pytest.raises(RunStopped, match="has expelled every client") as stop:
        fedtaco.run(
            "taco",
            partition="iid",
            rounds=5,
            local_steps=2,
            detector="paper",
            parameters={"paper.kappa": 0.1, "paper.max_strikes": 2},
        )
    assert [record.round for record in stop.value.history] == [1, 2]
    assert all(record.expelled for record in stop.value.history.clients if record.round == 2)


def test_detector_is_refused_for_a_method_with_masked_uploads():
    @dataclass(frozen=True)
    class Masked(Method):
        name = "masked"
        summary = "hides single uploads"
        inspectable = False

    clients = [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(3)]
    with pytest.raises(InvalidInput, match="No detector can judge the uploads of masked"):
        fedtaco.train(torch.nn.Linear(3, 2), clients, method=Masked(), rounds=1, local_steps=1, detector="guard")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            lambda uploads: 0.5 * uploads.shares,
            "weigh of own returned weights that sum to 0.5; divide them by their sum",
        ),
        (lambda uploads: uploads.shares[:, None], r"weigh of own returned weights of shape \(3, 1\) for 3 uploads"),
    ],
)
def test_weights_of_an_own_method_must_sum_to_one(returned, words):
    @dataclass(frozen=True)
    class Own(Method):
        name = "own"
        summary = "weighs uploads in a way that is not valid"

        def weigh(self, server, uploads):
            return returned(uploads)

    clients = [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(3)]
    with pytest.raises(InvalidInput, match=words):
        fedtaco.train(torch.nn.Linear(3, 2), clients, method=Own(), rounds=1, local_steps=1)


def evaluated_rounds(rounds, eval_every):
    """Return the rounds in which a server evaluates the model."""
    spec = RunSpec.with_defaults(FedAvg(), {"rounds": rounds, "eval_every": eval_every})
    server = Server(spec, spec.constants(CLIENTS, local_steps=1), CLIENTS)
    state = server.initial_state(torch.ones(3), torch.zeros(0))
    measured = []
    for number in range(1, rounds + 1):
        outcome = server.skip_round(replace(state, round=number - 1), CohortResults.empty([]))
        metrics = server.evaluate(outcome, lambda one: measured.append(one.state.round) or {"loss": 1.0})
        assert (metrics["loss"] == 1.0) == ("evaluation_seconds" in metrics) == (number in measured)
    return measured


def test_model_is_evaluated_every_few_rounds_and_in_the_last():
    assert evaluated_rounds(7, 1) == [1, 2, 3, 4, 5, 6, 7]
    assert evaluated_rounds(7, 3) == [3, 6, 7]
    assert evaluated_rounds(6, 3) == [3, 6]
    assert evaluated_rounds(4, 10) == [4]
