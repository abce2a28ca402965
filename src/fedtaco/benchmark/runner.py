"""Run a benchmark: tune each method on each task, then evaluate all of them, and the controls, on fresh seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

from fedtaco.benchmark.plan import Choice, choose_finalists, choose_settings, plan_controls, plan_tuning, task_spec
from fedtaco.benchmark.presets import Preset, Task
from fedtaco.benchmark.record import (
    DIGITS,
    FORMAT,
    LAST_ROUNDS,
    BenchmarkRecord,
    EntryRecord,
    RunRecord,
    TaskRecord,
    TuningRunRecord,
    first_round_at,
    read_record,
    write_record,
)
from fedtaco.benchmark.tried_settings import tried_with_all_seeds
from fedtaco.data import load_dataset
from fedtaco.errors import InvalidInput
from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.experiment.sweep import Trial, TunedMethod, run_trials, score_trials
from fedtaco.files import writing_run
from fedtaco.methods import METHODS
from fedtaco.records import History, RunFolder
from fedtaco.runs.callbacks import Callback, following
from fedtaco.runs.options import RunOptions
from fedtaco.version import __version__

RECORD = "benchmark.json"
"""Name of the file with the results."""
OnStage = Callable[[str, int], None]
"""Called with what begins, such as "tuning on adult", and its number of runs."""


def run_benchmark(
    preset: Preset,
    out: Path,
    options: RunOptions,
    callback: Callback,
    on_stage: OnStage = lambda *_: None,
) -> BenchmarkRecord:
    """Tune and evaluate all methods of a preset.

    Parameters
    ----------
    preset
        What to compare.
    out
        Folder for the run folders and for ``benchmark.json``, which is written after every task.
    options
        How to run; with ``resume``, runs that have ended are not repeated, with ``overwrite``, they are. In both cases,
        results in ``benchmark.json`` of tasks and methods that are not in the preset are kept.
    callback
        Called as runs proceed.
    on_stage
        Called before each task is tuned, before its finalists are tuned further, and before it is evaluated.

    Returns
    -------
    BenchmarkRecord
        The results.

    Raises
    ------
    InvalidInput
        If a setting is not valid, a folder cannot be used, results would be lost, or there are no results of the
        reference, and it is not among the methods.
    """
    require_folder_for_runs(out)
    for task in preset.tasks:
        # both raise InvalidInput for any task before the first is run
        plan_tuning(preset, task)
        load_dataset(task_spec(task).settings["dataset"], options.data_dir)
    record = _empty_record(preset)
    if (out / RECORD).exists():
        if not (options.resume or options.overwrite):
            raise InvalidInput(
                f"{out} holds a benchmark already; continue it (resume), replace its results on these tasks and "
                "methods (overwrite), or choose another folder (out)."
            )
        record = _with_earlier_results(record, preset, out / RECORD)
    for task in preset.tasks:
        _require_reference(preset, task, record)
    for task in preset.tasks:
        kept = _entries_to_keep(record, task)
        result = _run_task(preset, task, kept, out / task.folder, options, callback, on_stage)
        others = [one for one in record.tasks if one.name != task.name]
        record.tasks[:] = sorted([*others, result], key=lambda one: _place(one.name, preset.task_order))
        with writing_run(out):
            write_record(record, out / RECORD)
    return record


def _empty_record(preset: Preset) -> BenchmarkRecord:
    names = sorted(one.method for one in preset.methods)
    return BenchmarkRecord(
        format=FORMAT,
        fedtaco=__version__,
        name=preset.name,
        title=preset.title,
        reference=preset.reference,
        budget=preset.budget,
        tuning_seeds=list(preset.tuning_seeds),
        twins=[list(pair) for pair in preset.twins],
        costs={name: METHODS.find(name).cost for name in names},
        tasks=[],
    )


def _with_earlier_results(record: BenchmarkRecord, preset: Preset, path: Path) -> BenchmarkRecord:
    """Return a record with the results of an earlier one.

    Results of another protocol, in which methods were tuned with other seeds or budgets, or compared with another one,
    are left out.

    Raises
    ------
    InvalidInput
        If results would be lost: they do not fit the preset, and it does not run their task or method again.
    """
    earlier = read_record(path)
    fits = _protocol(earlier) == _protocol(record)
    tasks = {task.name: task for task in preset.tasks}
    for one in earlier.tasks:
        task = tasks.get(one.name)
        kept = one.entries if task is None else _entries_to_keep(earlier, task)
        repeated = set() if task is None else set(record.costs)
        safe = repeated.union(entry.method for entry in kept if fits)
        if lost := [entry.name for entry in one.entries if entry.method not in safe]:
            raise InvalidInput(
                f"{path} has results on {one.name} ({', '.join(lost)}) of another preset, or of an earlier version of "
                "this one; name these methods and the task too, or choose another folder (out)."
            )
    if not fits:
        return record
    costs = dict(sorted({**earlier.costs, **record.costs}.items()))
    return replace(record, tasks=list(earlier.tasks), costs=costs)


def _require_reference(preset: Preset, task: Task, record: BenchmarkRecord) -> None:
    """Raise InvalidInput if a task has no results of the reference, and a preset does not run it."""
    methods = {*(one.method for one in preset.methods), *(entry.method for entry in _entries_to_keep(record, task))}
    if preset.reference not in methods:
        raise InvalidInput(
            f"There are no results of {preset.reference} on {task.name}, with which the others are compared; add it "
            "to the methods."
        )


def _entries_to_keep(record: BenchmarkRecord, task: Task) -> list[EntryRecord]:
    """Return the earlier results on a task that has not changed, of methods that were evaluated with its seeds."""
    unchanged = [earlier for earlier in record.tasks if replace(earlier, entries=[]) == _task_record(task, [])]
    entries = [entry for earlier in unchanged for entry in earlier.entries]
    return [entry for entry in entries if [run.seed for run in entry.evaluation] in ([], list(task.seeds))]


def _place(name: str, order: Sequence[str]) -> int:
    """Return the place of a name in an order; unknown names come last."""
    return order.index(name) if name in order else len(order)


def _protocol(record: BenchmarkRecord) -> tuple[object, ...]:
    return record.name, record.reference, record.budget, record.tuning_seeds


def _run_task(
    preset: Preset,
    task: Task,
    kept: Sequence[EntryRecord],
    folder: Path,
    options: RunOptions,
    callback: Callback,
    on_stage: OnStage,
) -> TaskRecord:
    """Return the results of the methods of a preset, and earlier ones of others, in its order; controls come last."""
    tuned = _tune(preset, task, folder / "tuning", options, callback, on_stage)
    choices = [choose_settings(one, plan.method) for one, plan in zip(tuned, preset.methods, strict=True)]
    candidates = {one.name: one for one in (*map(_earlier_choice, kept), *choices)}
    controls = plan_controls(preset, task, list(candidates.values()))
    choices += [one for one in controls if candidates.get(one.name) != one]
    still_valid = [entry for entry in kept if entry.tuning or entry.name in {one.name for one in controls}]
    runs = [
        (spec, folder / "evaluation" / one.folder(spec.settings["seed"])) for one in choices for spec in one.specs(task)
    ]
    on_stage(f"Evaluating on {task.name}", len(runs))
    with following(callback, [spec.config for spec, _ in runs]):
        summaries = iter(run_all(runs, options, callback))
    entries = [
        EntryRecord(
            name=choice.name,
            method=choice.method,
            settings=dict(choice.settings),
            notes=list(choice.notes),
            tuning=[] if one is None else _tuning_records(one, task_spec(task).settings["target"]),
            evaluation=[_run_record(next(summaries)) for _ in choice.specs(task)],
        )
        for choice, one in zip_longest(choices, tuned)
    ]
    merged = {entry.name: entry for entry in (*still_valid, *entries)}
    ordered = sorted(merged.values(), key=lambda entry: (not entry.tuning, _place(entry.name, preset.method_order)))
    return _task_record(task, ordered)


def _earlier_choice(entry: EntryRecord) -> Choice:
    """Return the settings of an earlier evaluation, with the score for which they were chosen."""
    scores = (tried.score for tried in tried_with_all_seeds(entry.tuning, rounds=0) if tried.settings == entry.settings)
    return Choice(entry.name, entry.method, entry.settings, entry.notes, score=next(scores, 0.0))


def _task_record(task: Task, entries: list[EntryRecord]) -> TaskRecord:
    config = task_spec(task).settings
    settings = {name: config[name] for name in ("dataset", "model", "partition", "clients", "participation", "rounds")}
    settings |= {name: config[name] for name in ("local_steps", "local_lr", "batch_size", *task.settings)}
    return TaskRecord(task.name, task.primary, config["target"], task.finalists, settings, entries)


def _tune(
    preset: Preset, task: Task, folder: Path, options: RunOptions, callback: Callback, on_stage: OnStage
) -> list[TunedMethod]:
    """Try all settings with the first tuning seed, and the best of each method with the other seeds too."""
    trials = plan_tuning(preset, task)

    def run(stage: str, chosen: Sequence[Trial]) -> list[list[dict[str, Any]]]:
        specs = [spec for trial in chosen for spec in trial.specs]
        on_stage(stage, len(specs))
        with following(callback, [spec.config for spec in specs]):
            return run_trials(chosen, folder, options, callback)

    summaries = run(f"Tuning on {task.name}", [replace(trial, specs=trial.specs[:1]) for trial in trials])
    tuned = score_trials(trials, summaries, late_validation_accuracy)
    if len(preset.tuning_seeds) == 1:
        return tuned
    finalists = choose_finalists(trials, tuned, task.finalists)
    others = run(f"Tuning further on {task.name}", [replace(trial, specs=trial.specs[1:]) for trial in finalists])
    for trial, done in zip(finalists, others, strict=True):
        summaries[trials.index(trial)] += done
    return score_trials(trials, summaries, late_validation_accuracy)


def _tuning_records(tuned: TunedMethod, target: float) -> list[TuningRunRecord]:
    return [
        TuningRunRecord(
            seed=run["seed"],
            settings=dict(trial.point),
            validation_score=None if run["stopped"] else _rounded(late_validation_accuracy(run)),
            rounds_to_target=None if run["stopped"] else _first_round(run, target),
            stopped=run["stopped"],
        )
        for trial in tuned.trials
        for run in trial.summaries
    ]


def _first_round(summary: Mapping[str, Any], target: float) -> int | None:
    """Return the first round of a run in which the accuracy on held-out samples is at least ``target``."""
    return first_round_at(target, (one.validation_accuracy for one in RunFolder(summary["folder"]).rounds()))


def _run_record(summary: Mapping[str, Any]) -> RunRecord:
    history = History(RunFolder(summary["folder"]).rounds())
    return RunRecord(
        seed=summary["seed"],
        accuracy=[round(value, DIGITS) for value in history.column("accuracy") if value is not None],
        output_accuracy=_rounded(summary["output_accuracy"]),
        worst_tenth_accuracy=_rounded(summary["worst_tenth_accuracy"]),
        stopped=summary["stopped"],
    )


def _rounded(accuracy: float | None) -> float | None:
    return None if accuracy is None else round(accuracy, DIGITS)


def late_validation_accuracy(summary: Mapping[str, Any]) -> float | None:
    """Return the mean accuracy on held-out samples over the last ten rounds of a run, given its summary."""
    accuracies = [record.validation_accuracy for record in RunFolder(summary["folder"]).rounds()[-LAST_ROUNDS:]]
    known = [accuracy for accuracy in accuracies if accuracy is not None]
    return fmean(known) if known else None
