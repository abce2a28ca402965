"""Records of benchmarks, written by hand so that every figure is known."""

from __future__ import annotations

from fedtaco.benchmark.record import FORMAT, BenchmarkRecord, EntryRecord, RunRecord, TaskRecord, TuningRunRecord
from fedtaco.methods import METHODS


def make_run(accuracy, seed=0, stopped=None, output=None):
    return RunRecord(seed, list(accuracy), output, 0.5, stopped)


def make_tuning_run(score=0.5, rate=0.1, stopped=None, seed=100, rounds=None):
    return TuningRunRecord(seed, {"local_lr": rate}, score, rounds, stopped)


def make_entry(name, curves, stopped=(), **changes):
    """Return a method with one run per seed."""
    runs = [make_run(curve, seed, "It diverged." if seed in stopped else None) for seed, curve in enumerate(curves)]
    fields = {"method": name, "settings": {"local_lr": 0.1}, "notes": [], "tuning": [make_tuning_run()]}
    fields["evaluation"] = runs
    return EntryRecord(name, **{**fields, **changes})


def make_task(entries, name="adult", primary=True, target=0.75, rounds=3):
    return TaskRecord(name, primary, target, 12, {"dataset": "adult", "rounds": rounds}, list(entries))


def make_benchmark(*tasks, twins=()):
    names = sorted({entry.method for task in tasks for entry in task.entries} & set(METHODS))
    costs = {name: METHODS[name].cost for name in names}
    twins = [list(pair) for pair in twins]
    return BenchmarkRecord(FORMAT, "0.1.0", "own", "Own", "fedavg", 12, [100], twins, costs, list(tasks))
