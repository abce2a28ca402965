"""The screen: invalid uploads, a bound on norms relative to the median, outliers, and losses that jump."""

from __future__ import annotations

import math

import pytest
import torch

from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.methods import Broadcast
from fedtaco.records import Decision
from fedtaco.screen import (
    find_invalid,
    find_outlier,
    is_broken,
    loss_jumps,
    median_loss,
    median_norm,
    record_losses,
    screen_norms,
    without_strikes,
)
from fedtaco.trust import NormDetector, Off, Verdict

ANY = torch.tensor([-math.inf, 0.0])


def instructions(buffers=0, phase="train"):
    return Instructions(phase, 1, Broadcast(torch.zeros(3)), torch.zeros(buffers))


def results(norms, name="update", buffers=None):
    """Return uploads of these norms from clients 10, 11 and so on."""
    jobs = [ClientJob(row, 10 + row, 1, {}) for row in range(len(norms))]
    filled = CohortResults.empty(jobs)
    for job, norm in zip(jobs, norms, strict=True):
        upload = {name: torch.tensor([0.0, norm, 0.0])}
        own = torch.tensor([] if buffers is None else buffers[job.row])
        filled.put(job, ClientResult(upload, {}, own, None))
    return filled


def screen(norms, baseline=None, detector=None, **options):
    given = results(norms)
    return given, screen_norms(given, instructions(), baseline or {}, detector or NormDetector(max_norm=10), **options)


@pytest.mark.parametrize(
    ("update", "buffers", "reason"),
    [
        ([1.0, math.nan], [0.0, 1.0], "the upload is not finite"),
        ([1e30, 1.0], [0.0, 1.0], "the upload is not finite"),
        ([1.0, 1.0], [math.inf, 1.0], "the upload is not finite"),
        ([1.0, 1.0], [-5.0, -1e-30], "a variance in the buffers is negative"),
    ],
    ids=["nan", "norm overflows", "buffers", "variance"],
)
def test_invalid_rows_are_found(update, buffers, reason):
    updates, rows = torch.ones(3, 2), torch.ones(3, 2)
    updates[1], rows[1] = torch.tensor(update), torch.tensor(buffers)
    assert find_invalid({"momentum": torch.ones(3, 1), "update": updates}, rows, ANY) == {1: reason}


def test_valid_rows_are_not_reported():
    buffers = torch.tensor([[-3.0, 0.0], [2.0, 5.0]])
    assert find_invalid({"update": torch.ones(2, 4)}, buffers, ANY) == {}


def test_models_without_buffers_are_screened():
    assert find_invalid({"update": torch.tensor([[1.0], [math.nan]])}, torch.empty(2, 0), torch.empty(0)) == {
        1: "the upload is not finite"
    }


@pytest.mark.parametrize(("norm", "is_long"), [(9.9, False), (10.1, True), (1e6, True)])
def test_an_upload_above_the_bound_is_too_long(norm, is_long):
    given, screening = screen([1.0, 1.0, 1.0, norm])
    assert list(screening.dropped) == ([3] if is_long else [])
    assert float(given.vectors["update"][3].norm()) == pytest.approx(min(norm, 10.0))


def test_decisions_say_how_long_the_upload_is():
    _, screening = screen([1.0, 2.0, 2.0, 300.0])
    assert screening.too_long == {
        3: Decision(13, "dropped", "norm", 150.0, 10.0, "the norm of update is 300, 150 times the median")
    }


def test_clipping_keeps_the_direction_and_the_client():
    given, screening = screen([1.0, 1.0, 400.0], detector=NormDetector(max_norm=2.0, long_uploads="clip"))
    assert screening.dropped == {}
    assert screening.too_long[2].action == "clipped"
    torch.testing.assert_close(given.vectors["update"][2], torch.tensor([0.0, 2.0, 0.0]))


@pytest.mark.parametrize("detector", [Off(), NormDetector(long_uploads="use")], ids=["off", "use"])
def test_the_bound_can_be_switched_off(detector):
    given, screening = screen([1.0, 1.0, 1e9], detector=detector)
    assert screening.too_long == {}
    assert screening.baseline == {}
    assert float(given.vectors["update"][2].norm()) == pytest.approx(1e9)


def test_a_method_can_exempt_a_vector():
    _, screening = screen([1.0, 1.0, 1e9], unbounded={"update"})
    assert screening.too_long == {}


def test_every_vector_is_bounded():
    given = results([1.0, 1.0, 1.0])
    given.vectors["variate_change"] = torch.tensor([[1.0], [-1.0], [100.0]])
    screening = screen_norms(given, instructions(), {}, NormDetector(max_norm=10))
    assert screening.too_long[2].reason == "the norm of variate_change is 100, 100 times the median"


def test_the_change_of_buffers_is_bounded():
    given = results([1.0] * 4, buffers=[[1.0, 2.0], [1.5, 2.0], [1.0, 2.5], [800.0, 2.0]])
    asked = Instructions("train", 1, Broadcast(torch.zeros(3)), torch.tensor([1.0, 1.0]))
    screening = screen_norms(given, asked, {}, NormDetector(max_norm=10, long_uploads="clip"))
    assert list(screening.too_long) == [3]
    change = given.buffers[3] - asked.buffers
    typical = median_norm(
        torch.linalg.vector_norm(torch.tensor([[0.0, 1.0], [0.5, 1.0], [0.0, 1.5], [799.0, 1.0]]), dim=1)
    )
    assert float(change.norm()) == pytest.approx(10 * typical, rel=1e-4)


def test_zero_uploads_do_not_lower_the_bound():
    _, screening = screen([0.0, 0.0, 0.0, 1.0, 1.2])
    assert screening.too_long == {}


def test_two_uploads_without_earlier_rounds_are_not_compared():
    _, screening = screen([1e-6, 1.0])
    assert (screening.too_long, screening.baseline) == ({}, {})


def test_two_uploads_are_compared_with_earlier_rounds():
    _, screening = screen([1.0, 1e9], after_rounds(1.0))
    assert list(screening.too_long) == [1]


def test_a_round_of_zeros_is_accepted():
    _, screening = screen([0.0, 0.0])
    assert (screening.too_long, screening.baseline) == ({}, {})


def after_rounds(*medians):
    baseline = {}
    for norm in medians:
        _, screening = screen([norm] * 3, baseline)
        baseline = screening.baseline
    return baseline


def test_norms_may_fall_without_making_late_clients_too_long():
    _, screening = screen([0.01, 0.01, 1.0], after_rounds(1.0, 1.0, 1.0))
    assert screening.too_long == {}


def test_a_hostile_majority_of_one_round_is_bounded_by_earlier_rounds():
    given, screening = screen([1.0, 1e6, 1e6], after_rounds(1.0, 1.0, 1.0))
    assert sorted(screening.too_long) == [1, 2]
    assert float(given.vectors["update"][1].norm()) == pytest.approx(100.0)
    assert screening.is_surge


def test_a_surge_is_a_round_whose_median_is_far_above_earlier_ones():
    baseline = after_rounds(1.0, 1.1, 0.9)
    assert not screen([5.0] * 3, baseline)[1].is_surge
    assert screen([11.0] * 3, baseline)[1].is_surge


def test_the_baseline_remembers_ten_rounds():
    baseline = after_rounds(*[1.0] * 15)
    assert baseline["norm/train/update"].tolist() == [1.0] * 10


def test_phases_have_baselines_of_their_own():
    given = results([1.0] * 3)
    assert list(screen_norms(given, instructions(phase="survey"), {}, NormDetector(max_norm=10)).baseline) == [
        "norm/survey/update"
    ]


@pytest.mark.parametrize(
    ("norms", "row"), [([1.0, 1.1, 0.9, 1.0, 7.0], 4), ([1.0, 1.1, 0.9, 1.0], None), ([1.0, 2.0], None), ([1.0], None)]
)
def test_the_longest_upload_is_an_outlier_only_if_it_stands_out(norms, row):
    found = find_outlier(results(norms), instructions())
    assert (found and found[0]) == row


def test_the_outlier_is_the_one_that_stands_out_most_in_any_vector():
    given = results([1.0, 1.1, 0.9, 1.0, 7.0])
    given.vectors["momentum"] = torch.tensor([[1.0], [1.0], [50.0], [1.0], [1.1]])
    row, ratio, _ = find_outlier(given, instructions())
    assert (row, round(ratio)) == (2, 50)


def test_enormous_ratios_do_not_overflow():
    given = results([1.0, 1.0])
    given.vectors["update"] = torch.tensor([[1.0], [3e153]], dtype=torch.float64)
    assert find_outlier(given, instructions()) is None
    given = results([1.0] * 4)
    given.vectors["update"] = torch.tensor([[1e-150], [1e-150], [1e-150], [1e150]], dtype=torch.float64)
    assert find_outlier(given, instructions())[0] == 3


def losses(*values):
    """Return losses, one per evaluator; NaN for a client that did not evaluate the model."""
    return torch.tensor(values, dtype=torch.float64)


def after_losses(*rounds):
    baseline = {}
    for measured in rounds:
        baseline = record_losses(baseline, measured)
    return baseline


def test_a_loss_jumps_if_it_is_more_than_ten_times_the_last():
    baseline = after_losses(losses(0.5))
    assert not loss_jumps({}, losses(1e9))
    assert not loss_jumps(baseline, losses(5.0))
    assert loss_jumps(baseline, losses(5.1))
    assert loss_jumps(after_losses(losses(0.5), None), losses(5.1))


def test_the_model_is_broken_while_the_loss_is_far_above_the_lowest():
    baseline = after_losses(losses(0.1), losses(0.5))
    assert not is_broken({})
    assert not is_broken(baseline)
    assert is_broken(record_losses(baseline, losses(1.1)))
    assert is_broken(record_losses(record_losses(baseline, losses(1.1)), None))
    assert not is_broken(record_losses(record_losses(baseline, losses(1.1)), losses(0.9)))


HONEST = [(0.5, 0.4), (0.45, 0.35), (0.4, 0.4)]
BIMODAL = [(0.001, 0.002), (0.5, 0.3), (0.45, 0.35)]


@pytest.mark.parametrize("honest", [HONEST, BIMODAL, HONEST[:2], BIMODAL[:2]])
@pytest.mark.parametrize("lies", [(0.0, 0.4), (1e-9, 0.4), (0.4, 1e290), (0.4, math.inf), (math.inf, 0.0), (-9.0, 9.0)])
def test_one_false_loss_is_neither_a_jump_nor_a_broken_model(honest, lies):
    first, second = (losses(*(own[when] for own in [*honest, lies])) for when in (0, 1))
    baseline = after_losses(first)
    assert not loss_jumps(baseline, second)
    assert not is_broken(record_losses(baseline, second))


@pytest.mark.parametrize("lie", [0.0, 0.4, math.nan])
def test_one_false_loss_hides_no_broken_model(lie):
    baseline = after_losses(losses(0.001, 0.5, 0.4, 0.4))
    now = losses(0.9, 9.0, 8.0, lie)
    assert loss_jumps(baseline, now)
    assert is_broken(record_losses(baseline, now))


def test_losses_are_compared_with_those_of_the_same_nodes():
    """Each round, other nodes evaluate the model; the losses of some are a hundred times those of others."""
    few = losses(0.004, 0.006, 0.005, math.nan, math.nan, math.nan)
    others = losses(math.nan, math.nan, math.nan, 0.5, 0.6, 0.4)
    baseline = after_losses(few)
    assert not loss_jumps(baseline, others)
    baseline = record_losses(baseline, others)
    assert not is_broken(baseline)
    assert loss_jumps(baseline, 11 * few)
    broken = record_losses(baseline, 11 * few)
    assert is_broken(broken)
    assert not is_broken(record_losses(broken, others))


def test_both_of_two_nodes_must_measure_a_jump():
    baseline = after_losses(losses(0.5, 0.5))
    assert loss_jumps(baseline, losses(6.0, 6.0))
    assert not loss_jumps(baseline, losses(6.0, 0.5))
    assert not loss_jumps(baseline, losses(6.0, math.nan))


def test_the_loss_in_messages_is_the_median_of_those_who_measured():
    assert median_loss(losses(0.5, math.nan, 0.25, 1e290)) == 0.5


def test_a_verdict_without_strikes_still_drops():
    before = {"strikes": torch.tensor([0, 1]), "seen": torch.tensor([1, 1])}
    after = {"strikes": torch.tensor([1, 2]), "seen": torch.tensor([2, 2])}
    decisions = [Decision(0, "dropped", "zero", 0, 0, "zero"), Decision(1, "expelled", "zero", 0, 0, "zero")]
    verdict = without_strikes(Verdict(after, torch.tensor([True, True]), decisions, [], [1]), before, used=[])
    assert verdict.memory["strikes"].tolist() == [0, 1]
    assert verdict.memory["seen"].tolist() == [2, 2]
    assert not verdict.expelled
    assert [decision.action for decision in verdict.decisions] == ["dropped", "dropped"]
    assert verdict.dropped.all()


def test_a_client_that_is_not_expelled_is_spared_if_its_upload_is_used():
    memory = {"strikes": torch.tensor([1]), "seen": torch.tensor([1])}
    decisions = [Decision(0, "expelled", "alpha", 0.7, 0.6, "alpha")]
    verdict = without_strikes(Verdict(memory, torch.tensor([False]), decisions, []), memory, used=[0])
    assert [decision.action for decision in verdict.decisions] == ["spared"]
