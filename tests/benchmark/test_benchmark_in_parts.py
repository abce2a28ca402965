"""A benchmark that is run by several commands: what its record keeps."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from small_benchmarks import FEDAVG, IN_THIS_PROCESS, RESUME, CountRuns

from fedtaco import InvalidInput
from fedtaco.benchmark.presets import read_preset
from fedtaco.benchmark.record import read_record
from fedtaco.benchmark.runner import run_benchmark
from fedtaco.experiment import Callback, RunOptions
from fedtaco.records import RunFolder

TWO_TASKS = """
title = "Two tasks"
reference = "fedavg"
budget = 1
rates = [1]
tuning_seeds = [10]
seeds = [0]
twins = [["taco-correction", "taco-uniform"]]

[methods.fedavg]

[methods.taco-correction]

[methods.taco-uniform]

[[tasks]]
name = "digits even"
primary = true
dataset = "digits"
partition = "iid"
clients = 4
rounds = 2
local_steps = 3

[[tasks]]
name = "digits skewed"
dataset = "digits"
clients = 4
rounds = 2
local_steps = 3
"""
MOMENTUM = """
[methods.fedacg]
rates = [1]
grid = { "fedacg.momentum" = [0.5, 0.9] }
momentum = "fedacg.momentum"

[methods.fedavgm]
rates = [1]
grid = { "fedavgm.momentum" = [0.5, 0.9] }
momentum = "fedavgm.momentum"

[[tasks]]
"""


def test_with_another_tuning_seed_a_finished_benchmark_continues(tmp_path, monkeypatch):
    scores = {(0.05, 10): 0.9, (0.2, 10): 0.8, (0.05, 11): 0.1, (0.2, 11): 0.4}

    def score(summary):
        return scores[RunFolder(summary["folder"]).config()["local_lr"], summary["seed"]]

    monkeypatch.setattr("fedtaco.benchmark.runner.late_validation_accuracy", score)
    chosen, counts = [], CountRuns()
    for seeds in ("[10]", "[10, 11]"):
        preset = read_preset("own", FEDAVG.replace("[10]", seeds))
        record = run_benchmark(preset, tmp_path / "out", RESUME, counts)
        chosen.append(record.tasks[0].entries[0].settings["local_lr"])
    assert chosen == [0.05, 0.2]
    assert (counts.begun, counts.skipped) == (3 + 3, 2)  # 2 + 1 runs, then 2 + 1 more


def test_results_on_other_tasks_are_kept(tmp_path):
    both = read_preset("own", TWO_TASKS)
    first, second = (both.select([name], []) for name in ("digits even", "digits skewed"))
    run_benchmark(second, tmp_path / "out", IN_THIS_PROCESS, Callback())
    for one in (first, second, first):  # results on the task itself are replaced, and tasks are as in the preset
        record = run_benchmark(one, tmp_path / "out", RESUME, Callback())
        assert [task.name for task in record.tasks] == ["digits even", "digits skewed"]
    assert read_record(tmp_path / "out" / "benchmark.json") == record
    alone = [run_benchmark(one, tmp_path / one.tasks[0].folder, IN_THIS_PROCESS, Callback()) for one in (first, second)]
    assert record.tasks == [task for one in alone for task in one.tasks]
    replaced = run_benchmark(first, tmp_path / "out", RunOptions(overwrite=True, workers=1), Callback())
    assert replaced == alone[0]


def test_a_record_of_a_part_of_the_methods_keeps_costs_and_twins_of_the_others(tmp_path):
    both = read_preset("own", TWO_TASKS)
    run_benchmark(both.select(["digits even"], []), tmp_path / "out", IN_THIS_PROCESS, Callback())
    record = run_benchmark(both.select(["digits skewed"], ["fedavg"]), tmp_path / "out", RESUME, Callback())
    assert list(record.costs) == ["fedavg", "taco-correction", "taco-uniform"]
    assert record.twins == [["taco-correction", "taco-uniform"]]
    assert [len(task.entries) for task in record.tasks] == [3, 1]


def test_results_of_other_methods_are_kept_if_the_task_is_the_same(tmp_path):
    both = read_preset("own", TWO_TASKS).select(["digits even"], [])
    before = run_benchmark(both, tmp_path / "out", IN_THIS_PROCESS, Callback())
    path = tmp_path / "out" / "benchmark.json"
    path.write_text(path.read_text().replace('"notes": []', '"notes": ["of before"]'))
    record = run_benchmark(both.select([], ["fedavg", "taco-uniform"]), tmp_path / "out", RESUME, Callback())
    assert [entry.notes for entry in record.tasks[0].entries] == [[], ["of before"], []]
    assert [replace(entry, notes=[]) for entry in record.tasks[0].entries] == before.tasks[0].entries


def test_the_reference_need_not_be_run_again(tmp_path):
    both = read_preset("own", TWO_TASKS).select(["digits even"], [])
    run_benchmark(both.select([], ["fedavg", "taco-uniform"]), tmp_path / "out", IN_THIS_PROCESS, Callback())
    for folder in ("tuning", "evaluation"):
        shutil.rmtree(tmp_path / "out" / both.tasks[0].folder / folder)
    counts = CountRuns()
    record = run_benchmark(both.select([], ["taco-correction"]), tmp_path / "out", RESUME, counts)
    together = run_benchmark(both, tmp_path / "together", IN_THIS_PROCESS, Callback())
    assert record == together  # with taco-correction between the others, as in the preset, and with its twin
    assert counts.begun == 2  # one to tune, one to evaluate


def test_without_results_of_the_reference_it_must_be_run(tmp_path):
    both, counts = read_preset("own", TWO_TASKS), CountRuns()
    run_benchmark(both.select(["digits even"], ["fedavg"]), tmp_path / "out", IN_THIS_PROCESS, Callback())
    for options in (RESUME, RunOptions(overwrite=True, workers=1)):
        with pytest.raises(
            InvalidInput, match=r"no results of fedavg on digits (skewed|even), .* add it to the methods"
        ):
            run_benchmark(both.select([], ["taco-uniform"]), tmp_path / "out", options, counts)
    assert counts.begun == 0


@pytest.mark.parametrize("better", ["fedacg", "fedavgm"])
def test_controls_are_of_the_best_momentum_method_of_all_commands(tmp_path, monkeypatch, better):
    preset = read_preset("own", FEDAVG.replace("[[tasks]]", MOMENTUM))
    monkeypatch.setattr(
        "fedtaco.benchmark.runner.late_validation_accuracy", lambda run: 0.9 if run["method"] == better else 0.8
    )
    for methods in (["fedavg", "fedacg"], ["fedavg", "fedavgm"]):
        record = run_benchmark(preset.select([], methods), tmp_path / "out", RESUME, Callback())
    together = run_benchmark(preset, tmp_path / "together", IN_THIS_PROCESS, Callback())
    assert record.tasks == together.tasks
    assert record.tasks[0].entries[-2].notes == [f"The controls use η = 0.05 and β = 0.5 of {better}."]


@pytest.mark.parametrize(
    ("old", "new"),
    [("rounds = 2", "rounds = 3"), ("\nseeds = [0]", "\nseeds = [0, 1]"), ("[10]", "[10, 11]")],
    ids=["another task", "more seeds", "more tuning seeds"],
)
def test_results_of_other_methods_that_no_longer_fit_are_not_lost(tmp_path, old, new):
    run_benchmark(read_preset("own", TWO_TASKS).select(["digits even"], []), tmp_path / "out", RESUME, Callback())
    before, counts = (tmp_path / "out" / "benchmark.json").read_bytes(), CountRuns()
    changed = read_preset("own", TWO_TASKS.replace(old, new))
    with pytest.raises(InvalidInput, match=r"on digits even \(taco-correction, taco-uniform\) of another preset"):
        run_benchmark(changed.select(["digits even"], ["fedavg"]), tmp_path / "out", RESUME, counts)
    assert (counts.begun, (tmp_path / "out" / "benchmark.json").read_bytes()) == (0, before)


@pytest.mark.parametrize(("old", "new"), [("[10]", "[10, 11]"), ("rates = [1]", "rates = [1, 2]")])
def test_results_of_another_protocol_are_not_mixed_with_new_ones(tmp_path, old, new):
    run_benchmark(read_preset("own", TWO_TASKS), tmp_path / "out", IN_THIS_PROCESS, Callback())
    before = (tmp_path / "out" / "benchmark.json").read_bytes()
    changed = read_preset("own", TWO_TASKS.replace(old, new).replace("budget = 1", f"budget = {1 + ('rates' in old)}"))
    counts = CountRuns()
    with pytest.raises(
        InvalidInput, match=r"has results on digits skewed \(fedavg, taco-correction, taco-uniform\) of another preset"
    ):
        run_benchmark(changed.select(["digits even"], []), tmp_path / "out", RESUME, counts)
    assert (counts.begun, (tmp_path / "out" / "benchmark.json").read_bytes()) == (0, before)
    assert len(run_benchmark(changed, tmp_path / "out", RESUME, counts).tasks) == 2
    assert counts.begun > 0
