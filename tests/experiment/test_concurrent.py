"""Many runs: side by side, resumed, tuned."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import warnings

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput
from fedtaco.errors import ProcessDied
from fedtaco.experiment import Callback, RunOptions, resolve_config
from fedtaco.experiment.concurrent import run_all
from fedtaco.experiment.sweep import plan_sweep, run_sweep
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 4, "batch_size": 16}


class Diary(Callback):
    def __init__(self):
        self.events = []

    def on_run_begin(self, config, folder, engine):
        self.events.append(("begun", config["seed"], engine.name))

    def on_round_end(self, config, record):
        self.events.append(("round", config["seed"], record.round))

    def on_run_end(self, config, summary):
        self.events.append(("ended", config["seed"], summary["rounds"]))

    def on_run_skipped(self, config):
        self.events.append(("skipped", config["seed"]))


def planned(out, seeds, **settings):
    configs = [resolve_config(method="taco", seed=seed, **{**QUICK, **settings}) for seed in range(seeds)]
    return [(one, out / f"seed{one['seed']}") for one in configs]


def test_where_nothing_can_be_forked_runs_go_one_after_another(tmp_path, monkeypatch):
    def no_fork(_):
        raise ValueError("cannot find context for 'fork'")

    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(multiprocessing, "get_context", no_fork)
    diary = Diary()
    run_all(planned(tmp_path, 2), RunOptions(), diary)
    assert [event[1] for event in diary.events] == 5 * [0] + 5 * [1]


def test_a_run_that_is_killed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.experiment.concurrent.run_experiment", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(ProcessDied, match=r"The run taco seed \d died \(exit code -9\); continue with --resume"):
        run_all(planned(tmp_path, 2), RunOptions(), Diary())


def test_side_by_side_runs_are_the_same_runs(tmp_path):
    diary = Diary()
    summaries = run_all(planned(tmp_path, 3), RunOptions(), diary)
    assert [summary["seed"] for summary in summaries] == [0, 1, 2]
    for seed in range(3):
        own = [event for event in diary.events if event[1] == seed]
        assert own == [
            ("begun", seed, "batched"),
            *(("round", seed, number) for number in (1, 2, 3)),
            ("ended", seed, 3),
        ]
        alone = fedtaco.run("taco", seed=seed, workers=1, **QUICK)
        together = fedtaco.load(tmp_path / f"seed{seed}")
        for name, tensor in alone.model.state_dict().items():
            assert torch.equal(together.model.state_dict()[name], tensor)
    assert multiprocessing.active_children() == []


def test_finished_runs_are_skipped_and_the_rest_is_run(tmp_path):
    runs = planned(tmp_path, 3)
    run_all(runs[:1], RunOptions(), Diary())
    diary = Diary()
    summaries = run_all(runs, RunOptions(resume=True), diary)
    assert diary.events[0] == ("skipped", 0)
    assert {event[1] for event in diary.events if event[0] == "begun"} == {1, 2}
    assert [summary["rounds"] for summary in summaries] == [3, 3, 3]


def test_a_serial_engine_has_the_machine_for_itself(tmp_path):
    diary = Diary()
    run_all(planned(tmp_path, 2, engine="serial"), RunOptions(), diary)
    seeds = [event[1] for event in diary.events]
    assert seeds == sorted(seeds)


def test_a_run_that_diverges_does_not_stop_the_others(tmp_path):
    wild_one = resolve_config(method="fedavg", seed=7, **{**QUICK, "local_lr": 1e30})
    runs = [*planned(tmp_path, 1), (wild_one, tmp_path / "wild")]
    good, wild = run_all(runs, RunOptions(), Diary())
    assert good["stopped"] is None
    assert "diverged" in wild["stopped"]


def test_a_warning_in_a_run_is_the_callers(tmp_path, monkeypatch):
    """Two runs that warn alike are heard."""
    monkeypatch.setattr("torch.__version__", "2.4.0")
    runs = planned(tmp_path, 2)
    run_all(runs, RunOptions(), Diary())
    monkeypatch.undo()
    for _, path in runs:
        for left in ("checkpoint/manifest.json", "summary.json", "rounds.jsonl", "clients.jsonl"):
            (path / left).unlink()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        run_all(runs, RunOptions(resume=True), Diary())
    assert [str(one.message).startswith("A run that began with torch 2.4.0 continues") for one in heard] == [True] * 2


def test_an_error_in_a_run_is_the_callers(tmp_path):
    runs = planned(tmp_path, 2, dataset="mnist", model="mlp")
    with pytest.raises(InvalidInput, match="mnist"):
        run_all(runs, RunOptions(data_dir=tmp_path / "nothing"), Diary())
    assert multiprocessing.active_children() == []


INTERRUPTED = """
import signal, sys
from pathlib import Path
from fedtaco.experiment import Callback, RunOptions, resolve_config
from fedtaco.experiment.concurrent import run_all

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it

class Saying(Callback):
    def on_round_end(self, config, record):
        print(config["seed"], record.round, flush=True)

settings = dict(dataset="digits", clients=6, rounds=100000, local_steps=4, batch_size=16)
runs = [(resolve_config(method="taco", seed=s, **settings), Path(sys.argv[1]) / str(s)) for s in (0, 1)]
run_all(runs, RunOptions(), Saying())
"""


def test_an_interrupt_stops_all_runs_and_keeps_their_rounds(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            reached = {0: 0, 1: 0}
            while min(reached.values()) < 5:
                seed, number = map(int, process.stdout.readline().split())
                reached[seed] = number
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
    for seed, number in reached.items():
        folder = RunFolder(tmp_path / str(seed))
        round_number, _, _ = folder.checkpoint.load()
        assert number <= round_number <= len(folder.history()) <= round_number + 1


SWEEP = {**QUICK, "validation": 0.2}


def test_a_sweep_tries_each_methods_own_grid():
    grid = {"local_lr": [0.01, 0.1], "taco.gamma": [0.1, 0.2, 0.3], "fedprox.zeta": [0.1]}
    trials = plan_sweep(["fedavg", "taco", "fedprox"], grid, [0, 1], **SWEEP)
    tried = {name: [trial.point for trial in trials if trial.method == name] for name in ("fedavg", "taco", "fedprox")}
    assert [len(points) for points in tried.values()] == [2, 6, 2]
    assert all(set(point) == {"local_lr", "taco.gamma"} for point in tried["taco"])
    assert all(len(trial.configs) == 2 for trial in trials)
    assert trials[0].folder == "fedavg_local_lr=0.01"


def test_a_budget_is_the_same_for_every_method():
    grid = {"local_lr": [0.01, 0.05, 0.1], "taco.gamma": [0.1, 0.2, 0.3]}
    trials = plan_sweep(["fedavg", "taco"], grid, [0], 3, **SWEEP)
    assert [trial.method for trial in trials] == ["fedavg"] * 3 + ["taco"] * 3
    again = plan_sweep(["fedavg", "taco"], grid, [0], 3, **SWEEP)
    assert [trial.point for trial in trials] == [trial.point for trial in again]


def test_equal_values_and_equal_methods_are_not_run_twice():
    assert len(plan_sweep(["taco"], {"local_lr": [0.1, 0.10]}, [0], **SWEEP)) == 1
    with pytest.raises(InvalidInput, match="methods names taco more than once"):
        plan_sweep(["taco", "taco"], {"local_lr": [0.1]}, [0], **SWEEP)


def test_two_runs_never_share_a_folder(tmp_path):
    with pytest.raises(InvalidInput, match="the same folder"):
        run_all(planned(tmp_path, 1) * 2, RunOptions(), Diary())


def test_runs_side_by_side_after_torch_has_used_threads(tmp_path):
    """A forked process must not wait for its parent's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.randn(1500, 1500) @ torch.randn(1500, 1500)).exp()
        run_all(planned(tmp_path, 2), RunOptions(), Diary())
    finally:
        torch.set_num_threads(before)


def test_nothing_to_hold_out_is_told():
    with pytest.raises(InvalidInput, match="No client has two samples"):
        fedtaco.run("fedavg", **{**QUICK, "clients": 1437, "partition": "iid", "validation": 0.1})


def test_a_sweep_chooses_by_what_was_held_out(tmp_path):
    trials = plan_sweep(["fedavg"], {"local_lr": [0.0001, 0.3]}, [0, 1], **{**SWEEP, "rounds": 6})
    (best,) = run_sweep(trials, tmp_path / "sweep", RunOptions(), Diary())
    assert best.point == {"local_lr": 0.3}
    assert best.tried == 2
    summaries = [RunFolder(tmp_path / "sweep" / "fedavg_local_lr=0.3" / f"seed{seed}").summary() for seed in (0, 1)]
    mean = sum(summary["validation_accuracy"] for summary in summaries) / 2
    assert best.validation_accuracy == pytest.approx(mean)


@pytest.mark.parametrize(
    ("grid", "options", "words"),
    [
        ({"local_lr": [0.1]}, {"validation": 0.0}, "held-out training data; give validation"),
        ({}, {}, "The grid is empty"),
        ({"locallr": [0.1]}, {}, "no setting to tune 'locallr'; did you mean 'local_lr'"),
        ({"stem.alpha": [0.1]}, {}, "stem.alpha changes nothing here"),
        ({"local_lr": [0.1]}, {"budget": 0}, "budget is 0"),
        ({"seed": [1, 2]}, {}, "no setting to tune 'seed'"),
        ({"method": ["taco"]}, {}, "no setting to tune 'method'"),
    ],
)
def test_a_wrong_sweep_is_told(grid, options, words):
    with pytest.raises(InvalidInput, match=words):
        plan_sweep(["taco"], grid, [0], **{**SWEEP, **options})


def test_validation_samples_are_nobodys_training_data(tmp_path):
    result = fedtaco.run("fedavg", out=tmp_path / "run", **{**QUICK, "validation": 0.25})
    split = RunFolder(tmp_path / "run").partition()
    assert sum(len(part) for part in split.indices) == pytest.approx(0.75 * 1437, abs=6)
    assert all(0 <= record.validation_accuracy <= 1 for record in result.history)
    summary = RunFolder(tmp_path / "run").summary()
    best = max(result.history, key=lambda record: record.validation_accuracy)
    assert summary["chosen_validation_accuracy"] == best.validation_accuracy
    assert summary["chosen_accuracy"] == result.history[summary["chosen_round"] - 1].accuracy
    plain = fedtaco.run("fedavg", **QUICK)
    assert plain.history[0].validation_accuracy is None
