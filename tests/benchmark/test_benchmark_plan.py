"""What a benchmark tries, chooses and evaluates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_benchmark_presets import OWN

from fedtaco import InvalidInput
from fedtaco.benchmark.plan import (
    LOCAL_CONTROL,
    SERVER_CONTROL,
    Choice,
    choose_finalists,
    choose_settings,
    estimate_work,
    plan_controls,
    plan_tuning,
)
from fedtaco.benchmark.presets import read_preset
from fedtaco.experiment.sweep import TrialResult, TunedMethod

MOMENTUM = OWN.replace(
    "[methods.taco]",
    """[methods.fedacg]
rates = [1]
grid = { "fedacg.momentum" = [0.5, 0.8] }
momentum = "fedacg.momentum"

[methods.fedavgm]
rates = [1]
grid = { "fedavgm.momentum" = [0.5, 0.9] }
momentum = "fedavgm.momentum"

[methods.taco]""",
)


def tried(point, score, diverged=False):
    return TrialResult(point, score, None, [{"stopped": "It diverged." if diverged else None}])


def test_rates_are_multiples_of_the_base_rate_and_gamma_of_one_over_k():
    text = OWN.replace("[0.01, 0.02]", '["0.5/K", "1/K"]').replace(
        'partition = "iid"', "local_steps = 25\nlocal_lr = 0.1"
    )
    preset = read_preset("own", text)
    trials = plan_tuning(preset, preset.tasks[0])
    assert [(trial.method, trial.point) for trial in trials] == [
        ("fedavg", {"local_lr": 0.1}),
        ("fedavg", {"local_lr": 0.3}),
        ("taco", {"local_lr": 0.1, "taco.gamma": 0.02}),
        ("taco", {"local_lr": 0.1, "taco.gamma": 0.04}),
    ]
    (spec,) = trials[-1].specs
    config = spec.config
    assert (config["validation"], config["seed"], config["parameters"]["taco.gamma"]) == (0.1, 10, 0.04)
    with pytest.raises(InvalidInput, match="The grid of taco has equal values on the task even"):
        plan_tuning(read_preset("own", text.replace('"0.5/K"', "0.04")), preset.tasks[0])
    with pytest.raises(InvalidInput, match="A grid contains 'x/K'"):
        plan_tuning(read_preset("own", text.replace("0.5/K", "x/K")), preset.tasks[0])


def test_finalists_are_the_best_of_each_method():
    preset = read_preset("own", OWN)
    trials = plan_tuning(preset, preset.tasks[0])
    tuned = [
        TunedMethod("fedavg", [tried(trials[0].point, 0.1), tried(trials[1].point, 0.2)]),
        TunedMethod("taco", [tried(trials[2].point, 0.9), tried(trials[3].point, 0.8)]),
    ]
    assert choose_finalists(trials, tuned, 1) == [trials[1], trials[2]]
    assert choose_finalists(trials, tuned, 2) == trials


def test_a_setting_that_was_tried_with_fewer_seeds_is_not_chosen():
    once = tried({"local_lr": 0.1}, 0.9)
    twice = TrialResult({"local_lr": 0.3}, 0.7, 0.1, [{"stopped": None}] * 2)
    assert TunedMethod("fedavg", [once, twice]).best == [twice]


def test_the_highest_score_is_chosen_and_ties_are_said():
    low, high = tried({"local_lr": 0.1}, 0.6), tried({"local_lr": 0.3}, 0.7)
    assert choose_settings(TunedMethod("fedavg", [low, high], ["At the edge."]), "fedavg") == Choice(
        "fedavg", "fedavg", {"local_lr": 0.3}, ["At the edge."], 0.7
    )
    tied = choose_settings(TunedMethod("fedavg", [low, tried({"local_lr": 0.3}, 0.6)]), "fedavg")
    assert tied.settings == {"local_lr": 0.1}
    assert tied.notes == ["2 settings of fedavg are tied; the one with the lowest values is used."]


def test_a_method_whose_runs_all_diverged_is_not_evaluated():
    preset = read_preset("own", OWN)
    choice = choose_settings(TunedMethod("taco", [tried({"local_lr": 0.1}, 0.0, True)], ["All diverged."]), "taco")
    assert (choice.settings, choice.notes, choice.specs(preset.tasks[0])) == ({}, ["All diverged."], [])


def test_chosen_settings_are_evaluated_with_fresh_seeds_and_all_samples():
    preset = read_preset("own", OWN)
    choice = Choice("taco", "taco", {"local_lr": 0.2, "taco.gamma": 0.02})
    configs = [spec.config for spec in choice.specs(preset.tasks[0])]
    assert [config["seed"] for config in configs] == [0, 1]
    for config in configs:
        assert (config["validation"], config["local_lr"], config["partition"]) == (0.0, 0.2, "iid")
        assert config["parameters"]["taco.gamma"] == 0.02


def test_controls_have_the_effective_rate_of_the_best_momentum_method():
    preset = read_preset("own", MOMENTUM)
    tuned = [
        Choice("fedavg", "fedavg", {"local_lr": 0.1}, score=0.99),
        Choice("fedacg", "fedacg", {"local_lr": 0.1, "fedacg.momentum": 0.8}, score=0.8),
        Choice("fedavgm", "fedavgm", {"local_lr": 0.1, "fedavgm.momentum": 0.9}, score=0.7),
        Choice("taco", "taco", {"local_lr": 0.1, "taco.gamma": 0.01}, score=0.9),
    ]
    local, server = plan_controls(preset, preset.tasks[0], tuned)
    assert (local.name, local.method, local.settings) == (LOCAL_CONTROL, "fedavg", {"local_lr": 0.5})
    assert (server.name, server.method) == (SERVER_CONTROL, "fedavg")
    assert server.settings == {"local_lr": 0.1, "server_lr": 25.0}  # 50 local steps * 0.1 / (1 - 0.8)
    assert local.notes == ["The controls use η = 0.1 and β = 0.8 of fedacg."]
    assert len({choice.folder(0) for choice in (local, server, Choice("fedavg", "fedavg", {}))}) == 3
    assert server.specs(preset.tasks[0])[0].settings["server_lr"] == 25.0


def test_there_are_no_controls_without_a_momentum_method():
    preset = read_preset("own", OWN)
    tuned = [Choice(name, name, {"local_lr": 0.1}, score=0.9) for name in ("fedavg", "taco")]
    assert plan_controls(preset, preset.tasks[0], tuned) == []
    all_diverged = [Choice(one.method, one.method, {}) for one in read_preset("own", MOMENTUM).methods]
    assert plan_controls(read_preset("own", MOMENTUM), preset.tasks[0], all_diverged) == []


def test_work_is_local_steps_times_clients_times_rounds():
    settings = "clients = 10\nrounds = 3\nlocal_steps = 7\nparticipation = 0.5"
    preset = read_preset(
        "own",
        MOMENTUM.replace('partition = "iid"', settings)
        .replace("methods.taco", "methods.stem")
        .replace("taco.gamma", "stem.alpha")
        .replace('"taco", "fedavg"', '"stem", "fedavg"'),
    )
    work = estimate_work(preset, preset.tasks[0])
    assert (work.tuning_runs, work.evaluation_runs) == (8, 12)  # 4 methods * 2; (4 methods + 2 controls) * 2 seeds
    more = estimate_work(replace(preset, tuning_seeds=[10, 11, 12]), replace(preset.tasks[0], finalists=1))
    assert more.tuning_runs == 8 + 4 * 2  # one setting of each method with two more seeds
    gradients = 3 * 7 * 5
    assert more.client_steps - work.client_steps == (8 + 2) * gradients
    assert work.client_steps == (8 + 12 + 2 + 2) * gradients  # stem computes two gradients in each of its 4 runs
