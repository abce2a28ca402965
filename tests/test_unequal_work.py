"""Clients that take a share of their steps, do not answer, or miss the deadline."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_helpers import Interrupted, assert_same_model, assert_same_result, interrupt_after, without_times
from small_training import make_clients, train
from torch import nn

import fedtaco
from fedtaco import InvalidInput
from fedtaco.engines import SerialEngine
from fedtaco.methods import METHODS, FedAvg, Scaffold, TacoCorrection, TacoUniform
from fedtaco.testing import make_federation
from fedtaco.testing.checks import assert_same, named_tensors
from fedtaco.testing.engines import one_stack, two_workers
from fedtaco.testing.small_federation import final_state, run_rounds
from fedtaco.trust import AdversarialClients, Guard, PaperDetector, parse_behaviour
from fedtaco.unequal_work import ClientWork, LocalWork, client_speed, parse_local_work

ONCE, ANEW = LocalWork(0.3, 1.0), LocalWork(0.3, 1.0, every_round=True)
SHARES = "uniform:0.3,1.0"
MODEL = nn.Linear(5, 3)


def fit(**settings):
    """Train the same model in every call."""
    return train(model=MODEL, **settings)


class Recording(SerialEngine):
    """Records the clients and steps of every cohort that it runs."""

    def __init__(self, runner):
        super().__init__(runner)
        object.__setattr__(self, "jobs", [])

    def run(self, method, instructions, jobs):
        self.jobs.append({job.client: job.steps for job in jobs})
        return super().run(method, instructions, jobs)


# Shares of the local steps


def test_shares_are_drawn_once_or_in_every_round():
    once = np.array([[ONCE.share(0, client, number) for number in range(1, 9)] for client in range(500)])
    anew = np.array([[ANEW.share(0, client, number) for number in range(1, 9)] for client in range(500)])
    assert (once == once[:, :1]).all()
    assert len(np.unique(once)) == 500
    assert len(np.unique(anew)) == 4000
    for drawn in (once[:, 0], anew.ravel()):
        assert 0.3 <= drawn.min() < 0.31
        assert 0.99 < drawn.max() <= 1.0
        assert abs(drawn.mean() - 0.65) < 0.02
        assert abs(np.quantile(drawn, 0.25) - 0.475) < 0.02
    assert ONCE.share(0, 3, 1) != ONCE.share(1, 3, 1)


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("full", LocalWork()),
        ("uniform:0.3,1.0", ONCE),
        ("uniform:.3,1,round", ANEW),
        ("uniform:1,1", LocalWork()),
        ("uniform:0.5,0.5", LocalWork(0.5, 0.5)),
    ],
)
def test_forms_of_local_work(text, work):
    assert parse_local_work(text) == work


@pytest.mark.parametrize(
    "text",
    [
        *("", "half", "0.5", "uniform", "uniform:0.3", "uniform:0,1", "uniform:0.8,0.3", "uniform:0.5,1.5"),
        *("uniform:nan,1", "uniform:0.3,1.0,rounds", "uniform:0.3,1.0,", "full,round", "uniform:-0.3,1"),
        *("uniform:1e-3,1", "uniform:0.3,1 "),
    ],
)
def test_other_texts_are_refused(text):
    with pytest.raises(InvalidInput, match=r"^local_work is .*; it must be full, uniform:0.3,1.0 \(drawn once"):
        fit(local_work=text)


def test_clients_take_the_share_of_their_steps_rounded_and_at_least_one():
    federation = make_federation(
        FedAvg(), work=ClientWork(LocalWork(0.05, 0.9)), steps=[1, 2, 30, 40, 50], engine=Recording
    )
    run_rounds(federation, federation.initial)
    shares = [LocalWork(0.05, 0.9).share(0, client, 1) for client in range(5)]
    expected = [max(1, round(share * full)) for share, full in zip(shares, [1, 2, 30, 40, 50], strict=True)]
    assert [list(steps.values()) for steps in federation.clients.engine.jobs] == [expected] * 4
    assert len({one / full for one, full in zip(expected, [1, 2, 30, 40, 50], strict=True)}) > 2


def test_a_share_of_the_steps_equals_so_many_local_steps():
    work = parse_local_work(SHARES)
    steps = [max(1, round(work.share(0, client, 1) * 40)) for client in range(4)]
    assert len(set(steps)) > 1
    shared = fit(method="fedavg", local_steps=40, local_work=SHARES)
    assert_same_model(fit(method="fedavg", local_steps=steps).model, shared.model)
    assert not torch.equal(shared.model.weight, fit(method="fedavg", local_steps=40).model.weight)


def test_shares_are_those_of_the_steps_that_the_epochs_of_a_client_take():
    clients = [(x[:size], y[:size]) for (x, y), size in zip(make_clients(), (30, 20, 12, 6), strict=True)]
    settings = {"clients": clients, "method": "fedavg", "batch_size": 2}
    full = [30, 20, 12, 6]  # two epochs in batches of 2
    steps = [max(1, round(ONCE.share(0, client, 1) * own)) for client, own in enumerate(full)]
    by_epochs = fit(local_epochs=2, local_steps=None, local_work=SHARES, **settings)
    assert_same_model(fit(local_steps=steps, **settings).model, by_epochs.model)


def test_full_work_is_the_default_and_leaves_every_bit_as_it_is():
    assert_same_result(fit(), fit(local_work="full"))
    assert_same_result(fit(), fit(local_work="uniform:1,1"))


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=str)
def test_engines_agree(method):
    work = ClientWork(ANEW) if method.needs_all_clients else ClientWork(ANEW, dropout=0.3, deadline=0.9)
    options = {"work": work, "steps": [6] * 5}
    serial = final_state(method, **options)
    assert_same(serial, final_state(method, engine=two_workers, **options), "pool differs")
    stacked = named_tensors(final_state(method, engine=one_stack, **options))
    for (name, one), (_, other) in zip(named_tensors(serial), stacked, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12, msg=name)


def test_the_rule_of_auto_sees_how_many_clients_take_equally_many_steps():
    settings = {"dataset": "digits", "clients": 8, "rounds": 2, "local_steps": 40, "method": "fedavg"}
    engines = [fedtaco.run(**settings, **work).summary["engine"] for work in ({}, {"local_work": "uniform:0.2,1.0"})]
    assert engines[0].startswith("batched")
    assert "few clients take equally many steps" in engines[1]


@pytest.mark.parametrize(
    "settings", [{"local_work": f"{SHARES},round"}, {"client_dropout": 0.5, "deadline": 1.0}], ids=str
)
def test_a_resumed_run_ends_as_an_uninterrupted_one(settings, tmp_path):
    given = {"rounds": 8, "local_steps": 6, "method": "scaffold", **settings}
    expected = fit(**given)
    with pytest.raises(Interrupted):
        fit(out=tmp_path / "run", callbacks=[interrupt_after(3)], **given)
    assert_same_result(expected, fit(out=tmp_path / "run", resume=True, **given))
    assert_same_result(expected, fedtaco.load(tmp_path / "run", MODEL))


# Clients that do not answer


def test_dropouts_are_drawn_by_client_and_round_with_the_given_probability():
    absent = [
        ClientWork(dropout=0.3).in_round(0, number, dict.fromkeys(range(50), 4), 4).absent for number in range(200)
    ]
    assert abs(sum(map(len, absent)) / 10_000 - 0.3) < 0.015
    assert len({tuple(own) for own in absent}) == 200
    assert {reason for own in absent for reason in own.values()} == {"did not answer"}


def test_clients_that_do_not_answer_do_no_work_and_the_others_weigh_more():
    federation = make_federation(Scaffold(), work=ClientWork(dropout=0.4), engine=Recording, seed=1)
    finished = run_rounds(federation, federation.initial)
    sizes = set()
    for one, jobs in zip(finished, federation.clients.engine.jobs, strict=True):
        dropped = one.record.dropped
        assert set(dropped.values()) <= {"did not answer"}
        assert set(jobs) == set(range(5)) - set(dropped)
        assert (one.record.cohort, len(one.clients)) == (5, 5)
        for record in one.clients:
            expected = 0.0 if record.client in dropped else 1 / len(jobs)
            assert record.quantities["weight"] == pytest.approx(expected)
            assert (record.quantities["norm"] is None) == (record.seconds is None) == (record.client in dropped)
        sizes.add(len(jobs))
    assert len(sizes) > 1


@pytest.mark.parametrize("method", [TacoUniform(), TacoCorrection()], ids=str)
def test_a_round_with_dropouts_is_one_of_the_clients_that_answer(method):
    """Each receives its own α; the mean α of taco-uniform is that of the whole cohort."""
    work = ClientWork(dropout=0.4)
    absent = work.in_round(1, 1, dict.fromkeys(range(5), 3), 3).absent
    assert 0 < len(absent) < 5
    uploads = []

    class RecordingUploads(SerialEngine):
        def run(self, method, instructions, jobs):
            results = super().run(method, instructions, jobs)
            uploads.append(
                {int(c): row.clone() for c, row in zip(results.clients, results.vectors["update"], strict=True)}
            )
            return results

    for own in (work, ClientWork()):
        federation = make_federation(method, work=own, engine=RecordingUploads, seed=1)
        start = federation.initial
        alpha = torch.tensor([0.1, 0.9, 0.3, 0.5, 0.2], dtype=torch.float64)
        memory = {**start.server.memory, "alpha": alpha, "direction": torch.ones_like(start.server.weights)}
        state = type(start)(**{**vars(start), "server": type(start.server)(start.server.weights, memory)})
        (first, *_) = run_rounds(federation, state, 1)
        if own is work:
            weights = first.state.server.weights
    some, everybody = uploads[0], uploads[2]  # the engine has run one round more than needed
    assert set(some) == set(range(5)) - set(absent)
    assert set(everybody) == set(range(5))
    for client, update in some.items():
        assert torch.equal(update, everybody[client])
    torch.testing.assert_close(weights, start.server.weights - torch.stack(list(some.values())).mean(0))


@pytest.mark.parametrize("method", ["taco", "mime"])
def test_a_round_without_any_answer_is_skipped_and_recorded(method):
    result = fit(method=method, client_dropout=0.9, rounds=12)
    skipped = [record for record in result.history if len(record.dropped) == 4]
    assert 0 < len(skipped) < 12
    for record in skipped:
        assert record.cohort == 4
        assert record.accuracy is not None
        assert record.training_loss is None
        if record.round > 1:
            assert record.loss == result.history[record.round - 2].loss
    assert len(result.history.clients) == 48


def test_all_rounds_may_be_without_answers():
    federation = make_federation(FedAvg(), work=ClientWork(dropout=1 - 1e-12))
    start = federation.initial
    finished = run_rounds(federation, start)
    assert [len(one.record.dropped) for one in finished] == [5] * 4
    sent = 5 * start.server.weights.nbytes
    assert [(one.record.bytes_up, one.record.bytes_down) for one in finished] == [(0, sent)] * 4
    assert_same(start, finished[-1].state, "the state changed")


def test_dropouts_are_the_same_for_every_method_and_survive_the_run_folder(tmp_path):
    settings = {"rounds": 5, "client_dropout": 0.4, "deadline": 1.0, "participation": 0.75}
    dropped = [[record.dropped for record in fit(method=method, **settings).history] for method in ("taco", "mime")]
    assert dropped[0] == dropped[1]
    kept = fit(method="taco", out=tmp_path / "run", **settings)
    loaded = fedtaco.load(tmp_path / "run", MODEL).history
    assert [record.dropped for record in loaded] == dropped[0]
    assert without_times(loaded.table()) == without_times(kept.history.table())


def test_the_summary_counts_dropped_clients_by_reason():
    result = fit(rounds=6, client_dropout=0.4, deadline=1.0)
    reasons = [reason for record in result.history for reason in record.dropped.values()]
    summary = result.summary
    assert summary["dropped_uploads"] == len(reasons) == summary["unanswered"] + summary["missed_deadlines"]
    assert summary["unanswered"] == reasons.count("did not answer") > 0
    assert summary["missed_deadlines"] == reasons.count("missed the deadline") > 0


# Detectors


@pytest.mark.parametrize("detector", [PaperDetector(kappa=0.01, max_strikes=1), Guard()], ids=lambda one: one.name)
def test_nobody_gets_a_strike_for_not_answering(detector):
    """The paper's detector, with a low κ, strikes everybody who answers."""
    federation = make_federation(FedAvg(), work=ClientWork(dropout=0.5), detector=detector, seed=1)
    before = [0] * 5
    for one in federation.rounds(federation.initial):
        strikes = one.state.detector_memory["strikes"].tolist()
        for client in one.record.dropped:
            if one.record.dropped[client] == "did not answer":
                assert strikes[client] == before[client]
                assert client not in {decision.client for decision in one.record.decisions}
        if detector.name == "paper":
            assert strikes != before or len(one.record.dropped) >= 4
        before = strikes
        if one.state.members == 0:
            break


def test_freeloaders_are_found_in_spite_of_dropouts():
    adversaries = AdversarialClients(frozenset({1}), parse_behaviour("replay"), 0)
    options = {"work": ClientWork(ANEW, dropout=0.3), "detector": Guard(), "adversaries": adversaries}
    federation = make_federation(FedAvg(), seed=2, **options)
    finished = run_rounds(federation, federation.initial)
    judged = {decision.client for one in finished for decision in one.record.decisions}
    assert judged == {1}


# Deadlines


def test_speeds_are_log_uniform_between_a_half_and_two():
    logs = np.log2([client_speed(0, client) for client in range(2000)])
    assert -1 <= logs.min() < -0.99
    assert 0.99 < logs.max() <= 1
    assert abs(logs.mean()) < 0.03
    assert abs(np.quantile(logs, 0.25) + 0.5) < 0.04


def test_clients_that_are_too_slow_miss_the_deadline():
    speeds = [client_speed(0, client) for client in range(5)]
    steps = [max(1, round(ONCE.share(0, client, 1) * 20)) for client in range(5)]
    times = [own / (20 * speed) for own, speed in zip(steps, speeds, strict=True)]
    deadline = sorted(times)[3]
    work = ClientWork(ONCE, deadline=deadline).in_round(0, 1, dict.fromkeys(range(5), 20), 20)
    assert work.absent == {times.index(max(times)): "missed the deadline"}
    assert work.duration == deadline
    assert dict(work.steps) == dict(enumerate(steps))
    patient = ClientWork(ONCE, deadline=max(times)).in_round(0, 1, dict.fromkeys(range(5), 20), 20)
    assert patient.absent == {}
    assert patient.duration == max(times)


def test_simulated_durations_are_recorded():
    speeds = [client_speed(0, client) for client in range(4)]
    waiting = fit().history.column("simulated_duration")
    assert waiting == [pytest.approx(1 / min(speeds))] * 3
    deadline = 1.01 / max(speeds)
    hasty = fit(deadline=deadline)
    assert hasty.history.column("simulated_duration") == [deadline] * 3
    slow = {client: "missed the deadline" for client, speed in enumerate(speeds) if 1 / speed > deadline}
    assert 0 < len(slow) < 4
    assert hasty.history.column("dropped") == [slow] * 3


def test_nobody_waits_for_a_client_that_has_dropped_out():
    full = dict.fromkeys(range(6), 4)
    for number in range(1, 40):
        work = ClientWork(dropout=0.5).in_round(0, number, full, 4)
        times = [1 / client_speed(0, client) for client in full if client not in work.absent]
        assert work.duration == pytest.approx(max(times, default=0.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"deadline": 0.1}, r"^deadline is 0\.1, but even the fastest client needs more; set at least 0\.817\.$"),
        (
            {"deadline": 0.1, "local_work": "uniform:0.5,1.0,round"},
            r"^deadline is 0\.1, but even the fastest client needs more; set at least 0\.409\.$",
        ),
        ({"deadline": 0}, r"^deadline is 0; it must be a number above 0 and at most 1e\+06\.$"),
        ({"client_dropout": 1}, r"^client_dropout is 1; it must be a number at least 0 and below 1\.$"),
        ({"client_dropout": -0.1}, r"^client_dropout is -0\.1; it must be a number at least 0 and below 1\.$"),
    ],
)
def test_invalid_settings_are_refused_before_the_run(settings, message):
    with pytest.raises(InvalidInput, match=message):
        fit(**settings)
