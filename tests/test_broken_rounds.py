"""Rounds that break the model: undone, repeated once without the longest upload, and without strikes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

import fedtaco
from fedtaco import RunStopped
from fedtaco.cohort import ClientJob, ClientResult, CohortResults
from fedtaco.methods import FedAvg
from fedtaco.records import Decision
from fedtaco.server import Server
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import Detector, NormDetector, Off, Verdict

SETTINGS = {"dataset": "digits", "rounds": 6, "local_steps": 5}


@dataclass(frozen=True)
class StrikesEverybody(Detector):
    name = "strikes-everybody"
    summary = "gives every client a strike and expels at the second"

    def judge(self, memory, given):
        strikes = memory["strikes"].clone()
        strikes[given.uploads.clients] += 1
        expelled = torch.nonzero(strikes >= 2).flatten().tolist()
        count = len(given.uploads.clients)
        decisions = [Decision(0, "expelled", "any", 1.0, 0.0, "no reason")] if 0 in expelled else []
        kept = torch.zeros(count, dtype=torch.bool)
        return Verdict({**memory, "strikes": strikes}, kept, decisions, [{}] * count, expelled)


def conclude(norms, detector, loss_before=1.0, eval_every=1):
    """Return a server, its state before a round, the instructions and the outcome; uploads have these norms."""
    settings = {"rounds": 9, "local_steps": 1, "local_lr": 0.1, "eval_every": eval_every}
    spec = RunSpec.with_defaults(FedAvg(), settings, detector=detector)
    server = Server(spec, spec.constants(len(norms), local_steps=1), len(norms))
    state = server.initial_state(torch.zeros(2), torch.zeros(0))
    if loss_before is not None:
        state = server.skip_round(state, CohortResults.empty([])).finish(0.0, accuracy=None, loss=loss_before).state
    instructions = server.train_instructions(state, torch.arange(len(norms)))
    results = CohortResults.empty([ClientJob(row, row, 1, {}) for row in range(len(norms))])
    for row, norm in enumerate(norms):
        upload = {"update": torch.tensor([norm, 0.0])}
        results.put(ClientJob(row, row, 1, {}), ClientResult(upload, {}, torch.zeros(0), None))
    return server, state, instructions, server.conclude(state, instructions, results)


def loss_of(outcome):
    """Return metrics whose loss grows with the distance of the model from zero."""
    distance = float(outcome.state.server.weights.norm())
    return {"accuracy": None, "loss": math.nan if distance > 100 else 1 + distance**2}


def test_a_loss_that_jumps_is_undone_without_the_longest_upload():
    server, state, instructions, outcome = conclude([1.0, 1.1, 0.9, 1.0, 20.0], NormDetector(max_norm=30))
    settled, metrics = server.settle(state, instructions, outcome, loss_of)
    assert settled.state.server.weights[0] == pytest.approx(-1.0)
    assert metrics["loss"] == pytest.approx(2.0)
    record = settled.finish(0.0, **metrics).record
    assert list(record.dropped) == [4]
    assert record.dropped[4] == "the loss rose to 24 with this upload, whose norm is 20 times the median"
    assert [(one.client, one.action, one.test) for one in record.decisions] == [(4, "dropped", "outlier")]


def test_a_model_that_is_not_finite_is_undone():
    server, state, instructions, outcome = conclude([1.0, 1.0, 1.0, 900.0], NormDetector(max_norm=1000))
    settled, metrics = server.settle(state, instructions, outcome, loss_of)
    assert list(settled.results.dropped) == [3]
    assert metrics["loss"] == pytest.approx(2.0)


def test_a_model_that_is_not_finite_is_undone_in_a_round_without_evaluation():
    norms = [1.0, 1.0, 1.0, 900.0]
    server, state, instructions, outcome = conclude(norms, NormDetector(max_norm=1000), eval_every=9)
    outcome.state.server.weights[0] = math.inf
    settled, metrics = server.settle(state, instructions, outcome, loss_of)
    assert list(settled.results.dropped) == [3]
    assert settled.state.server.weights[0] == pytest.approx(-1.0)
    assert metrics == {"accuracy": None, "loss": None}


def test_without_an_outlier_such_a_model_ends_the_run():
    server, state, instructions, outcome = conclude([1.0] * 4, NormDetector(), eval_every=9)
    outcome.state.server.weights[0] = math.nan
    with pytest.raises(RunStopped, match="the global model is not finite; the run has diverged"):
        server.settle(state, instructions, outcome, loss_of)


def test_a_loss_is_compared_with_the_last_one_that_was_measured():
    server, state, instructions, outcome = conclude([1.0, 1.1, 0.9, 1.0, 20.0], NormDetector(max_norm=30))
    between = server.skip_round(state, CohortResults.empty([])).finish(0.0, accuracy=None, loss=None).state
    assert between.baseline["loss"].tolist() == state.baseline["loss"].tolist() == [1.0, 1.0]
    settled, _ = server.settle(between, instructions, outcome, loss_of)
    assert list(settled.results.dropped) == [4]


def test_without_an_outlier_a_jump_is_accepted():
    server, state, instructions, outcome = conclude([6.0] * 4, NormDetector())
    settled, metrics = server.settle(state, instructions, outcome, loss_of)
    assert settled is outcome
    assert metrics["loss"] == pytest.approx(37.0)


def test_without_an_outlier_a_model_that_is_not_finite_ends_the_run():
    server, state, instructions, outcome = conclude([500.0] * 4, NormDetector())
    with pytest.raises(RunStopped, match="loss is not finite; the run has diverged"):
        server.settle(state, instructions, outcome, loss_of)


def test_a_round_is_repeated_only_once():
    server, state, instructions, outcome = conclude([1.0, 1.0, 1.0, 1e4, 1e5], NormDetector(max_norm=1e6))
    with pytest.raises(RunStopped, match="the run has diverged"):
        server.settle(state, instructions, outcome, loss_of)
    assert list(outcome.results.dropped) == [4]


def test_nothing_is_undone_without_a_detector():
    server, state, instructions, outcome = conclude([1.0, 1.0, 1.0, 60.0], Off())
    settled, _ = server.settle(state, instructions, outcome, loss_of)
    assert settled is outcome


def test_the_first_loss_is_compared_with_nothing():
    server, state, instructions, outcome = conclude([1.0, 1.0, 1.0, 90.0], NormDetector(max_norm=100), loss_before=None)
    settled, _ = server.settle(state, instructions, outcome, loss_of)
    assert settled is outcome


def test_nobody_gets_a_strike_in_a_round_that_is_undone():
    server, state, instructions, outcome = conclude([1.0, 1.1, 0.9, 1.0, 20.0], StrikesEverybody(max_norm=30))
    assert outcome.state.detector_memory["strikes"].tolist() == [1] * 5
    settled, _ = server.settle(state, instructions, outcome, loss_of)
    assert settled.state.detector_memory["strikes"].tolist() == [0] * 5


def test_nobody_gets_a_strike_while_the_loss_is_far_above_the_lowest():
    server, _, instructions, outcome = conclude([1.0] * 4, StrikesEverybody())
    broken = outcome.finish(0.0, accuracy=None, loss=50.0).state
    after = server.conclude(broken, instructions, outcome.results)
    assert after.state.detector_memory["strikes"].tolist() == [1] * 4
    assert not after.state.expelled.any()
    assert [one.action for one in after.decisions] == ["spared"]


def test_a_round_in_which_everything_is_dropped_is_skipped():
    @dataclass(frozen=True)
    class DropsAll(Detector):
        name = "drops-all"
        summary = "drops everything"

        def judge(self, memory, given):
            count = len(given.uploads.clients)
            return Verdict(memory, torch.ones(count, dtype=torch.bool), [], [{}] * count)

    _, state, _, outcome = conclude([1.0] * 4, DropsAll())
    assert outcome.state.server is state.server
    assert outcome.state.round == state.round + 1
    assert len(outcome.finish(0.0, accuracy=None, loss=None).record.dropped) == 4


@pytest.mark.parametrize("detector", ["norm", "guard"])
def test_a_client_that_scales_its_upload_is_dropped_whatever_the_factor(detector):
    settings = {**SETTINGS, "rounds": 12, "freeloaders": 1}
    runs = [fedtaco.run("fedavg", detector=detector, behaviour=f"boost:{factor}", **settings) for factor in (100, 1e3)]
    undefended = fedtaco.run("fedavg", behaviour="boost:100", **settings).history
    for history in (runs[0].history, runs[1].history):
        assert history.column("accuracy") == runs[0].history.column("accuracy")
        assert all(len(record.dropped) == 1 for record in history)
        assert not any(record.expelled for record in history.clients)
        assert history.final_accuracy > undefended.final_accuracy + 0.2


def test_a_skipped_round_whose_loss_jumps_is_accepted():
    server, state = make_batch_norm_server()
    instructions = server.train_instructions(state, torch.arange(3))
    outcome = server.skip_round(state, CohortResults.empty([]))
    settled, _ = server.settle(state, instructions, outcome, lambda state: {"accuracy": None, "loss": 50.0})
    assert settled is outcome


def make_batch_norm_server():
    settings = {"rounds": 9, "local_steps": 1, "local_lr": 0.1}
    spec = RunSpec.with_defaults(FedAvg(), settings, detector=NormDetector())
    server = Server(spec, spec.constants(3, local_steps=1), 3)
    state = server.initial_state(torch.zeros(2), torch.ones(4))
    return server, server.skip_round(state, CohortResults.empty([])).finish(0.0, accuracy=None, loss=1.0).state
