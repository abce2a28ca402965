"""The progress bar, as Python code uses it."""

from __future__ import annotations

import io

from rich.console import Console

import fedtaco
from fedtaco import ProgressBar
from fedtaco.records import RoundRecord
from fedtaco.runs import progress
from fedtaco.runs.callbacks import Run, following

QUICK = {"dataset": "digits", "clients": 4, "rounds": 3, "local_steps": 2, "engine": "serial"}


def test_bar_counts_the_rounds_of_all_runs_and_disappears(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    bar = ProgressBar(console)
    fedtaco.compare(["fedavg", "taco"], out=tmp_path / "runs", callbacks=[bar], **QUICK)
    assert (bar.bar.tasks[0].completed, bar.bar.tasks[0].total) == (6, 6)
    assert not bar.bar.live.is_started
    shown = console.file.getvalue()
    assert "Engine serial: chosen by name." in shown
    assert "taco seed 0" in shown
    resumed = ProgressBar(Console(file=io.StringIO()))
    fedtaco.compare(["fedavg", "taco"], out=tmp_path / "runs", resume=True, callbacks=[resumed], **QUICK)
    assert resumed.bar.tasks[0].completed == 6


def test_bar_counts_rounds_before_a_resume_and_those_that_an_ended_run_left_out():
    bar = ProgressBar(Console(file=io.StringIO()))
    config = {"method": "taco", "seed": 0, "rounds": 10}
    history = [RoundRecord(number, None, None, None, 1.0) for number in (1, 2, 3)]
    with following(bar, [config]):
        run = Run(config, None, "serial: chosen by name", history, list)
        bar.on_run_begin(run)
        bar.on_round_end(run, RoundRecord(4, 0.5, 1.0, None, 1.0))
        assert bar.bar.tasks[0].completed == 4
        bar.on_run_end(run, {})
        assert bar.bar.tasks[0].completed == 10


def test_bar_is_stopped_after_an_error_and_can_be_used_again():
    bar = ProgressBar(Console(file=io.StringIO()))
    for _ in range(2):
        try:
            with following(bar, [{"method": "taco", "rounds": 1}]):
                raise KeyError
        except KeyError:
            assert not bar.bar.live.is_started


def test_only_the_first_warning_of_a_run_is_printed():
    console = Console(file=io.StringIO(), width=200)
    bar, config = ProgressBar(console), {"method": "taco", "seed": 0, "rounds": 10}
    warned = [RoundRecord(number, 0.5, 1.0, None, 1.0, warning=f"trouble {number}") for number in (1, 2, 3)]
    with following(bar, [config, config]):
        first, resumed = Run(config, None, "serial", [], list), Run(config, None, "serial", warned[:1], list)
        bar.on_run_begin(first)
        bar.on_round_end(first, warned[1])
        bar.on_round_end(first, warned[2])
        bar.on_run_begin(resumed)
        bar.on_round_end(resumed, warned[1])
    assert console.file.getvalue().count("trouble") == 1
    assert "taco seed 0, round 2: trouble 2." in console.file.getvalue()


def test_a_warning_names_what_distinguishes_its_run_from_others_of_the_method():
    console = Console(file=io.StringIO(), width=200)
    common = {"seed": 0, "rounds": 10, "clients": 4}
    configs = [{"method": "taco", "local_lr": 0.1, "parameters": {"taco.gamma": gamma}, **common} for gamma in (1, 2)]
    configs.append({"method": "fedavg", "local_lr": 0.3, "parameters": {}, **common})
    bar = ProgressBar(console)
    with following(bar, configs):
        for config in configs:
            run = Run(config, None, "serial", [], list)
            bar.on_round_end(run, RoundRecord(4, 0.5, 1.0, None, 1.0, warning="trouble"))
    assert console.file.getvalue().split("\n")[:3] == [
        "taco taco.gamma=1 seed 0, round 4: trouble.",
        "taco taco.gamma=2 seed 0, round 4: trouble.",
        "fedavg seed 0, round 4: trouble.",
    ]


def test_a_line_is_printed_every_minute_where_no_bar_is_shown(monkeypatch):
    config = {"method": "taco", "seed": 0, "rounds": 2000}
    run, record = Run(config, None, "serial", [], list), RoundRecord(4, 0.5, 1.0, None, 1.0)
    times = iter([0.0, 59.0, 60.0, 60.0, 119.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(times))
    console = Console(file=io.StringIO(), width=200)
    bar = ProgressBar(console)
    with following(bar, [config]):
        for _ in range(3):
            bar.on_round_end(run, record)
    lines = [line for line in console.file.getvalue().split("\n") if "rounds are done" in line]
    assert lines == ["4 of 2,000 rounds are done; the latest: taco seed 0 50.0%."]


def shown_for(record):
    """Return what the bar prints about a round."""
    console = Console(file=io.StringIO(), width=200)
    bar, run = ProgressBar(console), Run({"method": "taco", "seed": 0, "rounds": 10}, None, "serial", [], list)
    with following(bar, [run.config]):
        bar.on_round_end(run, record)
    return console.file.getvalue()


def test_simulated_failures_are_shown_only_if_nobody_answers():
    plain = {"round": 4, "accuracy": 0.5, "loss": 1.0, "slowest_client_seconds": None, "wall_seconds": 1.0, "cohort": 2}
    late, gone = "missed the deadline", "did not answer"
    assert "round 4" not in shown_for(RoundRecord(**plain, dropped={1: gone}))
    shown = shown_for(RoundRecord(**plain, dropped={0: late, 1: gone}))
    assert "round 4: no client answered in time, so the model stays as it was." in shown
    assert "client 1 dropped: not finite." in shown_for(RoundRecord(**plain, dropped={0: gone, 1: "not finite"}))
