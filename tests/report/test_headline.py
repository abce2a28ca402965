"""What the headline claims, and what it does not."""

from __future__ import annotations

import pytest
from run_summaries import run_summaries, run_summary

from fedtaco.report.headline import describe_results
from fedtaco.report.results import build_results


def headline(runs):
    return " ".join(build_results(runs).headline)


def test_a_difference_beyond_seed_noise_names_the_best_and_its_lead():
    runs = run_summaries({"fedavg": [0.8, 0.82, 0.81], "taco": [0.9, 0.92, 0.91], "stem": [0.5, 0.52, 0.5]})
    assert headline(runs) == (
        "taco ends highest, at 91.0 ± 1.0 % test accuracy, +10.0 [+10.0, +10.0] percentage points above fedavg."
    )


def test_methods_within_seed_noise_of_the_best_are_named_and_none_is_called_the_winner():
    runs = run_summaries(
        {"fedavg": [0.80, 0.90, 0.85], "taco": [0.86, 0.85, 0.90], "stem": [0.88, 0.84, 0.85], "zero": [0.1, 0.1, 0.1]}
    )
    assert headline(runs) == (
        "No difference beyond seed noise between taco, stem and fedavg. "
        "taco has the highest mean test accuracy, 87.0 ± 2.6 %."
    )


def test_equal_accuracies_are_a_tie():
    runs = run_summaries({"fedavg": [0.8, 0.9], "taco": [0.8, 0.9], "stem": [0.1, 0.2]})
    assert headline(runs).startswith(
        "No difference beyond seed noise between fedavg and taco. fedavg and taco have the"
    )
    runs = run_summaries({"fedavg": [0.9], "taco": [0.9], "stem": [0.1]})
    assert headline(runs).startswith("fedavg and taco are tied for the highest place in this one seed, at 90.0 % test")


def test_one_seed_is_called_one_seed():
    runs = run_summaries({"fedavg": [0.8], "taco": [0.9]})
    assert headline(runs) == (
        "taco is highest in this one seed, at 90.0 % test accuracy; one seed does not show that methods differ."
    )
    assert headline(runs[:1]) == "fedavg ends at 80.0 % test accuracy in one seed."
    assert headline(run_summaries({"taco": [0.8, 0.9]})) == "taco ends at 85.0 ± 7.1 % test accuracy."


def test_methods_are_compared_only_over_two_common_seeds():
    runs = [*run_summaries({"fedavg": [0.80, 0.81, 0.82], "taco": [0.9, 0.91, 0.92]}), run_summary("stem", 7, 0.1)]
    assert headline(runs).endswith("above fedavg. Not compared, with fewer than two seeds in common with taco: stem.")
    apart = [run_summary("fedavg", 0, 0.8), run_summary("taco", 1, 0.9)]
    assert headline(apart) == (
        "taco has the highest mean test accuracy, 90.0 %, with fewer than two seeds in common with the others."
    )


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ({"stopped": "It diverged."}, "fedprox diverged"),
        ({"predicts_one_class": True}, "fedprox predicts one class only"),
    ],
)
def test_failures_are_named(ending, words):
    runs = run_summaries({"taco": [0.9, 0.91]})
    failed = [run_summary("fedprox", seed, 0.1, **ending) for seed in (0, 1)]
    assert headline([*runs, *failed]).endswith(f" {words}.")
    others = [{**run, "method": "stem"} for run in failed]
    plural = words.replace("predicts", "predict").replace("fedprox", "fedprox and stem")
    assert headline([*runs, *failed, *others]).endswith(f" {plural}.")
    assert headline([*runs, failed[0], run_summary("fedprox", 1, 0.1)]).endswith(f" {words} in 1 of 2 seeds.")


def test_without_a_test_set_nothing_is_claimed():
    assert headline([run_summary("taco", accuracy=None), run_summary("fedavg", accuracy=None)]) == ""


def test_long_lists_of_settings_are_cut():
    runs = run_summaries({f"taco (gamma={number})": [0.8, 0.9] for number in range(30)})
    assert " taco (gamma=11) and 18 more." in headline(runs)


def test_methods_that_swing_are_named():
    swinging = {"last_ten_range": 0.2, "alternates": True}
    runs = [run_summary("taco", seed, 0.8, **(swinging if seed else {})) for seed in (0, 1)]
    runs += [run_summary("foolsgold", seed, 0.7, **swinging) for seed in (0, 1)]
    assert headline(runs).endswith("taco swings in 1 of 2 seeds. foolsgold swings.")


def diagnosed(method, clients=(), measured_rounds=10, rounds=0, measured=100):
    found = {"measured": measured, "share": 0.5, "uphill": 0.2, "measured_clients": 20 if measured else 0}
    found |= {"clients": list(clients), "measured_rounds": measured_rounds, "rounds": rounds}
    return {"method": method, "seed": 0, "over_correction": found}


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (
            diagnosed("taco", [1, 4, 7], rounds=6),
            "The correction of taco goes too far for 3 of 20 clients in most rounds (clients 1, 4 and 7) and for the "
            "global model in 6 of 10 rounds; try a weaker one.",
        ),
        (
            diagnosed("fedacg", range(20), rounds=5),
            "The correction of fedacg goes too far for all 20 clients in most rounds and for the global model in 5 of "
            "10 rounds; it need not be weaker.",
        ),
        (
            diagnosed("scaffold", measured_rounds=0),
            "The correction of scaffold goes too far for none of 20 clients in most rounds; it need not be weaker.",
        ),
        (
            diagnosed("fedavgm", measured=0, rounds=9),
            "The correction of fedavgm goes too far for the global model in 9 of 10 rounds; try a weaker one.",
        ),
        (diagnosed("fedavg", measured=0, measured_rounds=0), "fedavg corrects nothing."),
    ],
    ids=["clients and rounds", "clients only", "corrections that cancel", "server momentum", "no correction"],
)
def test_diagnosed_methods_are_described(run, sentence):
    assert describe_results([], [run]) == [sentence]


def test_diagnosed_seeds_are_joined_and_other_runs_skipped():
    runs = [diagnosed("taco", [1], rounds=9), diagnosed("taco", [2, 3], rounds=4), {"method": "stem", "seed": 0}]
    assert describe_results([], runs) == [
        "The correction of taco goes too far for 3 of 40 clients in most rounds and for the global model in 13 of 20 "
        "rounds; try a weaker one."
    ]
