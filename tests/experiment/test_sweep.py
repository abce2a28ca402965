"""Sweeps: the grid of each method, budgets, and the choice by held-out samples."""

from __future__ import annotations

import pytest

from fedtaco import InvalidInput
from fedtaco.experiment import Callback, RunOptions
from fedtaco.experiment.sweep import plan_sweep, run_sweep, run_trials, score_trials
from fedtaco.records import RunFolder

SETTINGS = {
    "dataset": "digits",
    "clients": 6,
    "rounds": 3,
    "local_steps": 4,
    "batch_size": 16,
    "validation": 0.2,
}


def test_each_method_tries_its_own_part_of_the_grid():
    grid = {"local_lr": [0.01, 0.1], "taco.gamma": [0.1, 0.2, 0.3], "fedprox.zeta": [0.1]}
    trials = plan_sweep(["fedavg", "taco", "fedprox"], grid, [0, 1], **SETTINGS)
    tried = {name: [trial.point for trial in trials if trial.method == name] for name in ("fedavg", "taco", "fedprox")}
    assert [len(points) for points in tried.values()] == [2, 6, 2]
    assert all(set(point) == {"local_lr", "taco.gamma"} for point in tried["taco"])
    assert all(len(trial.specs) == 2 for trial in trials)
    assert trials[0].folder == "fedavg_local_lr=0.01"


def test_budget_is_the_same_for_every_method():
    grid = {"local_lr": [0.01, 0.05, 0.1], "taco.gamma": [0.1, 0.2, 0.3]}
    trials = plan_sweep(["fedavg", "taco"], grid, [0], 3, **SETTINGS)
    assert [trial.method for trial in trials] == ["fedavg"] * 3 + ["taco"] * 3
    again = plan_sweep(["fedavg", "taco"], grid, [0], 3, **SETTINGS)
    assert [trial.point for trial in trials] == [trial.point for trial in again]


def test_equal_values_are_tried_once_and_equal_methods_refused():
    assert len(plan_sweep(["taco"], {"local_lr": [0.1, 0.10]}, [0], **SETTINGS)) == 1
    with pytest.raises(InvalidInput, match="methods names taco more than once"):
        plan_sweep(["taco", "taco"], {"local_lr": [0.1]}, [0], **SETTINGS)


def test_best_point_is_chosen_by_validation_accuracy(tmp_path):
    trials = plan_sweep(["fedavg"], {"local_lr": [0.0001, 0.3]}, [0, 1], **{**SETTINGS, "rounds": 6})
    (tuned,) = run_sweep(trials, tmp_path / "sweep", RunOptions(), Callback())
    (best,) = tuned.best
    assert best.point == {"local_lr": 0.3}
    assert len(tuned.trials) == 2
    summaries = [RunFolder(tmp_path / "sweep" / "fedavg_local_lr=0.3" / f"seed{seed}").summary() for seed in (0, 1)]
    first, second = (summary["validation_accuracy"] for summary in summaries)
    assert best.validation_accuracy == pytest.approx((first + second) / 2)
    assert best.validation_deviation == pytest.approx(abs(first - second) / 2**0.5)
    assert tuned.notes == ["local_lr = 0.3 is the largest value tried for fedavg; try larger ones."]


def tune(monkeypatch, tmp_path, grid, accuracies, method="taco"):
    """Return the result of a sweep whose trials have these accuracies on held-out samples; ``None`` is a divergence."""
    trials = plan_sweep([method], grid, [0], **SETTINGS)
    summaries = [
        {"stopped": "It diverged." if accuracy is None else None, "validation_accuracy": accuracy}
        for accuracy in accuracies
    ]
    monkeypatch.setattr("fedtaco.experiment.sweep.run_all", lambda *_: summaries)
    (tuned,) = run_sweep(trials, tmp_path / "sweep", RunOptions(), Callback())
    return tuned


@pytest.mark.parametrize(
    ("values", "accuracies", "best", "notes"),
    [
        (
            [0.1, 0.02, 0.3],
            [0.5, 0.6, 0.4],
            [0.02],
            ["taco.gamma = 0.02 is the smallest value tried; try smaller ones."],
        ),
        ([0.1, 0.02, 0.3], [0.5, 0.4, 0.6], [0.3], ["taco.gamma = 0.3 is the largest value tried; try larger ones."]),
        ([0.1, 0.02, 0.3], [0.6, 0.5, 0.4], [0.1], []),
        ([0.1, 0.02, 0.3], [0.6, 0.5, 0.6], [0.1, 0.3], []),
        ([0.1, 0.02, 0.3], [0.6, 0.6, 0.6], [0.02, 0.1, 0.3], []),
        ([0.1, 1.0], [0.5, 0.6], [1.0], []),
        ([0.0, 0.1], [0.6, 0.5], [0.0], []),
        ([0.1], [0.5], [0.1], []),
        ([0.1, 0.2, 0.3], [0.6, None, 0.5], [0.1], ["taco.gamma = 0.1 is the smallest value tried; try smaller ones."]),
        ([0.1, 0.2], [None, None], [], ["All runs of taco diverged."]),
    ],
)
def test_tied_settings_are_all_best_and_the_edge_of_the_grid_is_mentioned(
    monkeypatch, tmp_path, values, accuracies, best, notes
):
    tuned = tune(monkeypatch, tmp_path, {"taco.gamma": values}, accuracies)
    assert [trial.point["taco.gamma"] for trial in tuned.trials] == sorted(values)
    assert [trial.point["taco.gamma"] for trial in tuned.best] == best
    assert tuned.notes == notes


def test_text_has_no_edge(monkeypatch, tmp_path):
    tuned = tune(monkeypatch, tmp_path, {"partition": ["iid", "groups"]}, [0.5, 0.6])
    assert [trial.point["partition"] for trial in tuned.trials] == ["groups", "iid"]
    assert tuned.notes == []


@pytest.mark.parametrize(
    ("grid", "options", "message"),
    [
        ({"local_lr": [0.1]}, {"validation": 0.0}, "held-out training data; set validation"),
        ({}, {}, "The grid is empty"),
        ({"locallr": [0.1]}, {}, "no setting to tune 'locallr'; did you mean 'local_lr'"),
        ({"stem.alpha": [0.1]}, {}, "stem.alpha has no effect"),
        ({"local_lr": [0.1]}, {"budget": 0}, "budget is 0"),
        ({"seed": [1, 2]}, {}, "no setting to tune 'seed'"),
        ({"method": ["taco"]}, {}, "no setting to tune 'method'"),
        (
            {"local_lr": [number / 1000 for number in range(101)], "batch_size": list(range(1, 102))},
            {"budget": 3},
            "The grid has 10,201 points; at most 10,000 are possible",
        ),
    ],
)
def test_invalid_sweeps_are_explained(grid, options, message):
    with pytest.raises(InvalidInput, match=message):
        plan_sweep(["taco"], grid, [0], **{**SETTINGS, **options})


def test_a_sweep_without_methods_is_refused():
    with pytest.raises(InvalidInput, match="methods is empty"):
        plan_sweep([], {"local_lr": [0.1]}, [0], **SETTINGS)


def test_another_score_may_decide(tmp_path):
    trials = plan_sweep(["fedavg"], {"local_lr": [0.0001, 0.3]}, [0], **SETTINGS)

    def prefer_small_rates(summary):
        return 1 - RunFolder(summary["folder"]).config()["local_lr"]

    (tuned,) = score_trials(
        trials, run_trials(trials, tmp_path / "sweep", RunOptions(), Callback()), prefer_small_rates
    )
    assert [trial.validation_accuracy for trial in tuned.trials] == pytest.approx([0.9999, 0.7])
    assert [trial.point for trial in tuned.best] == [{"local_lr": 0.0001}]
