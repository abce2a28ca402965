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

[methods."own_momentum:Heavy"]
rates = [1]
grid = { "heavy.momentum" = [0.5, 0.9] }
momentum = "heavy.momentum"

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


@pytest.fixture
def own_momentum(tmp_path, monkeypatch):
    """A module with a method, FedAvgM under another name."""
    code = "import fedtaco\n\nclass Heavy(fedtaco.FedAvgM):\n    name = 'heavy'\n    summary = 'FedAvgM'\n"
    (tmp_path / "own_momentum.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("own_momentum")
@pytest.mark.parametrize("better", ["fedacg", "own_momentum:Heavy"])
def test_controls_are_of_the_best_momentum_method_of_all_commands(tmp_path, monkeypatch, better):
    preset = read_preset("own", FEDAVG.replace("[[tasks]]", MOMENTUM))
    monkeypatch.setattr(
        "fedtaco.benchmark.runner.late_validation_accuracy",
        lambda run: 0.9 if RunFolder(run["folder"]).config()["method"] == better else 0.8,
    )
    for methods in (["fedavg", "own_momentum:Heavy"], ["fedacg"]):
        record = run_benchmark(preset.select([], methods), tmp_path / "out", RESUME, Callback())
    together = run_benchmark(preset, tmp_path / "together", IN_THIS_PROCESS, Callback())
    assert record == together
    assert record.tasks[0].entries[-2].notes == [f"The controls use η = 0.05 and β = 0.5 of {better}."]


def test_controls_that_no_longer_follow_from_the_preset_are_removed(tmp_path):
    text = FEDAVG.replace("[[tasks]]", MOMENTUM)
    both = ["fedavg", "fedacg"]
    before = run_benchmark(read_preset("own", text).select([], both), tmp_path / "out", RESUME, Callback())
    assert len(before.tasks[0].entries) == 4
    without = read_preset("own", text.replace("momentum = ", "# momentum = "))
    record = run_benchmark(without.select([], ["fedacg"]), tmp_path / "out", RESUME, Callback())
    assert [entry.name for entry in record.tasks[0].entries] == both


def test_code_of_methods_that_are_not_selected_is_not_imported(tmp_path):
    text = TWO_TASKS.replace("[methods.taco-uniform]", '[methods."absent:Code"]').replace(
        '"taco-uniform"', '"absent:Code"'
    )
    only = read_preset("own", text).select(["digits even"], ["fedavg", "taco-correction"])
    record = run_benchmark(only, tmp_path / "out", IN_THIS_PROCESS, Callback())
    assert record.twins == [["taco-correction", "absent:Code"]]


def test_a_benchmark_is_not_replaced_unasked_and_only_as_far_as_asked(tmp_path):
    both = read_preset("own", TWO_TASKS)
    before = run_benchmark(both, tmp_path / "out", IN_THIS_PROCESS, Callback())
    path = tmp_path / "out" / "benchmark.json"
    for folder in tmp_path.glob("out/digits-*"):
        shutil.rmtree(folder)
    counts, even = CountRuns(), both.select(["digits even"], [])
    with pytest.raises(InvalidInput, match=r"holds a benchmark already; continue it \(resume\), replace its results"):
        run_benchmark(even, tmp_path / "out", IN_THIS_PROCESS, counts)
    assert (counts.begun, read_record(path)) == (0, before)

    overwrite = RunOptions(overwrite=True, workers=1)
    longer = read_preset("own", TWO_TASKS.replace("rounds = 2", "rounds = 3", 1)).select(["digits even"], [])
    record = run_benchmark(longer, tmp_path / "out", overwrite, Callback())
    assert [task.settings["rounds"] for task in record.tasks] == [3, 2]
    assert record.tasks[1] == before.tasks[1]
    assert run_benchmark(even, tmp_path / "out", overwrite, Callback()) == before


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
