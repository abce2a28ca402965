"""Records of benchmarks, written by hand so that every figure is known."""

from __future__ import annotations

from fedtaco.benchmark.record import FORMAT, BenchmarkRecord, EntryRecord, RunRecord, TaskRecord
from fedtaco.methods import METHODS


def make_run(accuracy, seed=0, stopped=None, settings=None, score=None, output=None):
    return RunRecord(seed, settings or {"local_lr": 0.1}, list(accuracy), score, output, 0.5, stopped)


def make_entry(name, curves, stopped=(), **changes):
    """Return a method with one run per seed."""
    runs = [make_run(curve, seed, "It diverged." if seed in stopped else None) for seed, curve in enumerate(curves)]
    tuning = [make_run([0.5], 100, score=0.5)]
    fields = {"method": name, "settings": {"local_lr": 0.1}, "notes": [], "tuning": tuning, "evaluation": runs}
    return EntryRecord(name, **{**fields, **changes})


def make_task(entries, name="adult", primary=True, target=0.75):
    return TaskRecord(name, primary, target, {"dataset": "adult", "rounds": 3}, list(entries))


def make_benchmark(*tasks, twins=()):
    names = sorted({entry.method for task in tasks for entry in task.entries} & set(METHODS))
    costs = {name: METHODS[name].cost for name in names}
    twins = [list(pair) for pair in twins]
    return BenchmarkRecord(FORMAT, "0.1.0", "own", "Own", "fedavg", 12, [100], twins, costs, list(tasks))
