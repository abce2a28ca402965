"""Several runs at the same time: events, errors, warnings and interrupts reach the caller."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from run_helpers import Interrupted, assert_same_model, interrupt_after

import fedtaco
from fedtaco import InvalidInput
from fedtaco.errors import ProcessDied
from fedtaco.experiment import Callback, RunOptions, build_spec, run_experiment
from fedtaco.experiment.concurrent import run_all
from fedtaco.records import RunFolder

QUICK = {"dataset": "digits", "clients": 6, "rounds": 3, "local_steps": 4, "batch_size": 16}


class RecordingCallback(Callback):
    """Records events as tuples of a name, the seed of the run, and a detail."""

    def __init__(self):
        self.events = []

    def on_run_begin(self, run):
        self.events.append(("begin", run.config["seed"], run.engine.partition(" ")[0]))

    def on_evaluation_begin(self, run, round_number):
        self.events.append(("evaluation", run.config["seed"], round_number))

    def on_round_end(self, run, record):
        assert run.history[-1] == record
        self.events.append(("round", run.config["seed"], record.round))

    def on_run_end(self, run, summary):
        self.events.append(("end", run.config["seed"], summary["rounds"]))

    def on_run_skipped(self, run):
        self.events.append(("skipped", run.config["seed"]))


def make_runs(out, seeds, **settings):
    """Return configurations that differ in their seed, and a folder for each."""
    configs = [build_spec(method="taco", seed=seed, **{**QUICK, **settings}) for seed in range(seeds)]
    return [(one, out / f"seed{one.settings['seed']}") for one in configs]


def test_concurrent_runs_equal_single_runs(tmp_path):
    callback = RecordingCallback()
    summaries = run_all(make_runs(tmp_path, 3), RunOptions(), callback)
    assert [summary["seed"] for summary in summaries] == [0, 1, 2]
    for seed in range(3):
        own = [event for event in callback.events if event[1] == seed]
        assert own == [
            ("begin", seed, "batched"),
            *((event, seed, number) for number in (1, 2, 3) for event in ("evaluation", "round")),
            ("end", seed, 3),
        ]
        single = fedtaco.run("taco", seed=seed, workers=1, **QUICK)
        assert_same_model(single.model, fedtaco.load(tmp_path / f"seed{seed}").model)
    assert multiprocessing.active_children() == []


def test_concurrent_runs_after_torch_has_used_threads(tmp_path):
    """A forked process must not wait for its parent's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (torch.randn(1500, 1500) @ torch.randn(1500, 1500)).exp()
        run_all(make_runs(tmp_path, 2), RunOptions(), RecordingCallback())
    finally:
        torch.set_num_threads(before)


def test_runs_are_sequential_where_processes_cannot_be_forked(tmp_path, monkeypatch):
    def no_fork(_):
        raise ValueError("cannot find context for 'fork'")

    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr(multiprocessing, "get_context", no_fork)
    callback = RecordingCallback()
    run_all(make_runs(tmp_path, 2), RunOptions(), callback)
    assert [event[1] for event in callback.events] == 8 * [0] + 8 * [1]


def test_runs_with_the_serial_engine_are_sequential(tmp_path):
    callback = RecordingCallback()
    run_all(make_runs(tmp_path, 2, engine="serial"), RunOptions(), callback)
    seeds = [event[1] for event in callback.events]
    assert seeds == sorted(seeds)


def test_finished_runs_are_skipped_and_the_others_run(tmp_path):
    runs = make_runs(tmp_path, 3)
    run_all(runs[:1], RunOptions(), RecordingCallback())
    callback = RecordingCallback()
    summaries = run_all(runs, RunOptions(resume=True), callback)
    assert callback.events[0] == ("skipped", 0)
    assert {event[1] for event in callback.events if event[0] == "begin"} == {1, 2}
    assert [summary["rounds"] for summary in summaries] == [3, 3, 3]


def test_two_runs_in_the_same_folder_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="the same folder"):
        run_all(make_runs(tmp_path, 1) * 2, RunOptions(), RecordingCallback())


def test_run_that_diverges_does_not_stop_the_others(tmp_path):
    diverging = build_spec(method="fedavg", seed=7, **{**QUICK, "local_lr": 1e30})
    runs = [*make_runs(tmp_path, 1), (diverging, tmp_path / "diverging")]
    finished, stopped = run_all(runs, RunOptions(), RecordingCallback())
    assert finished["stopped"] is None
    assert "diverged" in stopped["stopped"]


def test_killed_run_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.experiment.concurrent.run_experiment", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(ProcessDied, match=r"The run taco seed \d died \(exit code -9\); continue it \(resume\)"):
        run_all(make_runs(tmp_path, 2), RunOptions(), RecordingCallback())


def test_run_that_is_terminated_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("fedtaco.experiment.concurrent.run_experiment", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(ProcessDied, match=r"The run taco seed \d died \(exit code 143\); continue it \(resume\)"):
        run_all(make_runs(tmp_path, 2), RunOptions(), RecordingCallback())


def test_error_in_a_run_is_raised_in_the_caller(tmp_path):
    runs = make_runs(tmp_path, 2, dataset="mnist", model="mlp")
    with pytest.raises(InvalidInput, match="mnist"):
        run_all(runs, RunOptions(data_dir=tmp_path / "nothing"), RecordingCallback())
    assert multiprocessing.active_children() == []


def test_warnings_of_every_run_reach_the_caller(tmp_path, monkeypatch):
    """Even if two runs warn alike."""
    monkeypatch.setattr("torch.__version__", "2.4.0")
    runs = make_runs(tmp_path, 2)
    for spec, path in runs:
        with pytest.raises(Interrupted):
            fedtaco.run(
                "taco", out=path, seed=spec.settings["seed"], workers=1, callbacks=[interrupt_after(1)], **QUICK
            )
    monkeypatch.undo()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_all(runs, RunOptions(resume=True), RecordingCallback())
    assert [str(one.message).startswith("A run that began with torch 2.4.0 continues") for one in caught] == [True] * 2


INTERRUPTED = """
import signal, sys
from pathlib import Path
from fedtaco.experiment import Callback, RunOptions, build_spec, run_experiment
from fedtaco.experiment.concurrent import run_all

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it

class PrintingCallback(Callback):
    def on_round_end(self, run, record):
        print(run.config["seed"], record.round, flush=True)

settings = dict(dataset="digits", clients=6, rounds=100000, local_steps=4, batch_size=16)
runs = [(build_spec(method="taco", seed=s, **settings), Path(sys.argv[1]) / str(s)) for s in (0, 1)]
run_all(runs, RunOptions(), PrintingCallback())
"""


@pytest.mark.parametrize("is_stopped", [False, True])
def test_interrupt_ends_all_runs_and_keeps_their_rounds(is_stopped, tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            reached = {0: 0, 1: 0}
            while min(reached.values()) < 5:
                seed, number = map(int, process.stdout.readline().split())
                reached[seed] = number
            if is_stopped:
                child = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
                os.kill(int(child), signal.SIGSTOP)
                assert re.search(rf"Process {child}, the run taco seed \d, has been stopped", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=25)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
    for seed, number in reached.items():
        folder = RunFolder(tmp_path / str(seed))
        round_number, _, _ = folder.load_checkpoint()
        assert number <= round_number <= len(folder.history()) <= round_number + 1


def test_runs_that_do_not_notice_sigterm_are_interrupted_after_their_round(tmp_path, monkeypatch):
    """Python may ignore the KeyboardInterrupt of a signal, for example in ``__del__``."""

    def run_without_sigterm(config, folder, *arguments):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            run_experiment(config, folder, *arguments)
        except KeyboardInterrupt:
            (folder.path / "interrupted").touch()
            raise

    monkeypatch.setattr("fedtaco.experiment.concurrent.run_experiment", run_without_sigterm)
    runs = make_runs(tmp_path, 2, rounds=100000)
    with pytest.raises(Interrupted):
        run_all(runs, RunOptions(), interrupt_after(2))
    assert all((path / "interrupted").exists() for _, path in runs)


@pytest.mark.parametrize("process", ["child", "parent"])
def test_sigterm_during_a_fork_ends_all_runs_without_a_traceback_of_a_process(process, tmp_path):
    """Python ignores errors, also KeyboardInterrupt, in functions that it calls after a fork."""
    hook = f"import os; os.register_at_fork(after_in_{process}=lambda: os.kill(os.getpid(), signal.SIGTERM))"
    handler = "signal.signal(signal.SIGTERM, signal.default_int_handler)"
    script = INTERRUPTED.replace("\nsettings", f"\n{handler}\n{hook}\nsettings").replace("100000", "30")
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=100, check=False
    )
    last = done.stderr.splitlines()[-1]
    expected = "KeyboardInterrupt" if process == "parent" else r"ProcessDied: .* died \(exit code -15\)"
    assert re.search(expected, last)
    assert done.stderr.count("Traceback") == 1
    assert "ignored" not in done.stderr
