"""Accuracy and speed of the settings that were tried."""

from __future__ import annotations

import pytest
from made_benchmarks import make_benchmark, make_entry, make_task, make_tuning_run

from fedtaco.benchmark.page import write_page
from fedtaco.benchmark.tried_settings import TriedSettings, fastest_accurate_settings, tried_with_all_seeds


def try_rate(rate, scores, rounds):
    """Return the runs of a learning rate with the seeds 100, 101, and so on."""
    pairs = enumerate(zip(scores, rounds, strict=True), 100)
    return [make_tuning_run(score, rate, seed=seed, rounds=first) for seed, (score, first) in pairs]


def test_figures_are_means_over_the_seeds():
    runs = try_rate(0.1, [0.84, 0.80], [20, 10])
    assert tried_with_all_seeds(runs, 50) == [
        TriedSettings({"local_lr": 0.1}, pytest.approx(0.82), pytest.approx(15.0))
    ]


def test_a_run_that_diverges_counts_as_0_and_one_without_the_target_as_one_round_more_than_it_has():
    runs = [make_tuning_run(0.8, rounds=9), make_tuning_run(None, seed=101, stopped="It diverged.")]
    (only,) = tried_with_all_seeds(runs, 50)
    assert (only.score, only.rounds) == pytest.approx((0.4, 30.0))


def test_settings_with_which_all_runs_diverge_do_not_count():
    assert tried_with_all_seeds([make_tuning_run(None, stopped="It diverged.")], 50) == []


def test_settings_that_were_tried_with_the_first_seed_only_do_not_count():
    runs = [*try_rate(0.1, [0.84, 0.80], [20, 10]), *try_rate(0.2, [0.9], [1])]
    assert [one.settings for one in tried_with_all_seeds(runs, 50)] == [{"local_lr": 0.1}]


def test_the_fastest_accurate_settings_are_within_a_point_of_the_best_accuracy_of_all_methods():
    slow, fast, poor = (
        TriedSettings({"local_lr": rate}, score, rounds)
        for rate, score, rounds in ((0.1, 0.84, 20.0), (0.2, 0.831, 5.0), (0.3, 0.829, 2.0))
    )
    assert fastest_accurate_settings({"taco": [slow, fast, poor], "fedavg": [poor]}) == {"taco": fast}
    assert fastest_accurate_settings({"taco": [fast, poor], "fedavg": [poor]}) == {"taco": poor, "fedavg": poor}
    assert fastest_accurate_settings({"taco": []}) == {}


def test_of_equally_early_settings_the_most_accurate_are_chosen():
    worse, better = TriedSettings({"local_lr": 0.1}, 0.83, 5.0), TriedSettings({"local_lr": 0.2}, 0.835, 5.0)
    assert fastest_accurate_settings({"taco": [worse, better]}) == {"taco": better}


def test_the_page_shows_the_rounds_of_the_chosen_and_of_the_fastest_accurate_settings(tmp_path):
    runs = [*try_rate(0.1, [0.84], [2]), *try_rate(0.2, [0.835], [1])]
    write_page(make_benchmark(make_task([make_entry("fedavg", [[0.8]], tuning=runs)])), tmp_path / "page.md")
    assert "| 84.0 | 2.0 | 1.0 (local\\_lr=0.2) | 2 | 0 |" in (tmp_path / "page.md").read_text()


def test_a_record_whose_settings_have_no_seed_in_common_can_be_drawn(tmp_path):
    runs = [make_tuning_run(rate=0.1), make_tuning_run(rate=0.2, seed=101)]
    write_page(make_benchmark(make_task([make_entry("fedavg", [[0.8]], tuning=runs)])), tmp_path / "page.md")
    assert "| 50.0 | – | – | 2 | 0 |" in (tmp_path / "page.md").read_text()
