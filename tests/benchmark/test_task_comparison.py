"""Comparisons of methods on one task, seed by seed."""

from __future__ import annotations

import pytest
from made_benchmarks import make_entry, make_run, make_task
from scipy.stats import ttest_rel

from fedtaco.benchmark.plan import LOCAL_CONTROL
from fedtaco.benchmark.task_comparison import TaskComparison

FEDAVG, TACO, STEM = [0.80, 0.82, 0.81, 0.79], [0.83, 0.84, 0.85, 0.80], [0.70, 0.73, 0.71, 0.72]


def compare(**figures):
    """Return a comparison of methods, given the accuracy of each seed in the only round."""
    return TaskComparison(
        make_task([make_entry(name, [[one] for one in own]) for name, own in figures.items()]), "fedavg"
    )


def test_differences_are_paired_by_seed():
    comparison = compare(fedavg=FEDAVG, taco=TACO)
    expected = ttest_rel(TACO, FEDAVG).confidence_interval(0.95)
    difference = comparison.difference("taco", "fedavg")
    assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
    assert comparison.difference("taco", None) is None


def test_p_values_are_corrected_for_the_number_of_methods():
    raw = {"taco": ttest_rel(TACO, FEDAVG).pvalue, "stem": ttest_rel(STEM, FEDAVG).pvalue}
    assert raw["stem"] < raw["taco"]
    found = compare(fedavg=FEDAVG, taco=TACO, stem=STEM).p_values
    assert found == pytest.approx({"taco": raw["taco"], "stem": 2 * raw["stem"]})


def test_controls_count_for_the_correction_of_p_values_too():
    comparison = compare(**{"fedavg": FEDAVG, "taco": TACO, LOCAL_CONTROL: [0.80, 0.83, 0.80, 0.78]})
    assert comparison.p_values["taco"] == pytest.approx(2 * ttest_rel(TACO, FEDAVG).pvalue)


def test_runs_are_paired_by_their_seeds_not_by_their_order():
    early, late = [0.8] * 10, [*9 * [0.1], 0.8]
    calm, wide = [0.80, 0.81] * 5, [0.7, 0.8] * 5
    fedavg = make_entry("fedavg", [], evaluation=[make_run(early, 0), make_run(late, 1), make_run(wide, 2)])
    taco = make_entry("taco", [], evaluation=[make_run(wide, 2), make_run(late, 1), make_run(calm, 3)])
    comparison = TaskComparison(make_task([fedavg, taco], rounds=10), "fedavg")
    difference = comparison.difference("taco", "fedavg")
    assert (difference.mean, difference.low, difference.high) == pytest.approx((0, 0, 0), abs=1e-12)
    found = comparison.rounds_to_target(taco)
    assert (found.earlier, found.later, found.same) == (0, 0, 2)
    assert comparison.count_swings(taco) == 0


def test_the_median_of_an_even_number_of_rounds_is_the_lower_one():
    fedavg = make_entry("fedavg", [[0.8, 0.8, 0.8], [0.1, 0.1, 0.8]])
    rare = make_entry("taco", [[0.1, 0.8, 0.8], [0.1, 0.1, 0.1]])
    comparison = TaskComparison(make_task([fedavg, rare]), "fedavg")
    assert [comparison.rounds_to_target(one).median for one in (fedavg, rare)] == [1, 2]


def test_only_differences_with_a_small_corrected_p_value_are_significant():
    comparison = compare(fedavg=FEDAVG, taco=TACO, stem=STEM)
    assert comparison.p_values["taco"] < 0.05
    assert (comparison.significantly_above, comparison.significantly_below) == (["taco"], ["stem"])
    close = compare(fedavg=FEDAVG, taco=[0.83, 0.81, 0.82, 0.80])
    assert close.ranking[0] == "taco"
    assert (close.significantly_above, close.significantly_below) == ([], [])


def test_ranking_and_best_other():
    comparison = compare(fedavg=FEDAVG, taco=TACO, stem=STEM)
    assert comparison.ranking == ["taco", "fedavg", "stem"]
    assert [comparison.best_other(name) for name in ("taco", "stem")] == ["fedavg", "taco"]
    assert compare(fedavg=FEDAVG).best_other("fedavg") is None


def test_one_seed_has_no_interval_and_no_p_value():
    comparison = compare(fedavg=[0.8], taco=[0.9])
    assert comparison.difference("taco", "fedavg") is None
    assert comparison.p_values == {}


def test_rounds_to_target_are_censored_and_paired():
    early, late, never = [0.8, 0.8, 0.8], [0.1, 0.1, 0.8], [0.1, 0.1, 0.1]
    fedavg = make_entry("fedavg", [late, late, never, never, early])
    taco = make_entry("taco", [early, never, late, never, early])
    comparison = TaskComparison(make_task([fedavg, taco], target=0.75), "fedavg")
    found = comparison.rounds_to_target(taco)
    # taco: 1, never, 3, never, 1; fedavg: 3, 3, never, never, 1
    assert (found.median, found.reached) == (3, 3)
    assert (found.earlier, found.later, found.same) == (2, 1, 2)
    rare = make_entry("taco", [early, never, never, never, never])
    assert TaskComparison(make_task([fedavg, rare]), "fedavg").rounds_to_target(rare).median is None


def test_a_run_that_diverged_does_not_reach_the_target():
    curve = [0.8, 0.8]
    taco = make_entry("taco", [curve, curve], stopped=[1])
    comparison = TaskComparison(make_task([make_entry("fedavg", [curve, curve]), taco]), "fedavg")
    assert comparison.rounds_to_target(taco).reached == 1
    assert comparison.accuracies["taco"] == {0: pytest.approx(0.8), 1: 0.0}


def test_swings_are_counted_by_comparison_with_fedavg_of_the_same_seed():
    calm, wide, wider = [0.80, 0.81] * 5, [0.80, 0.86] * 5, [0.7, 0.8] * 5
    fedavg, taco = make_entry("fedavg", [calm, wide]), make_entry("taco", [wide, wide])
    comparison = TaskComparison(make_task([fedavg, taco]), "fedavg")
    assert comparison.count_swings(taco) == 1
    assert comparison.count_swings(fedavg) == 1  # by its turns, as it has no partner
    assert TaskComparison(make_task([fedavg, taco]), "taco").count_swings(taco) == 1  # whatever the reference is
    alone = make_entry("taco", [calm, wide, wider])
    assert TaskComparison(make_task([alone]), "taco").count_swings(alone) == 2
