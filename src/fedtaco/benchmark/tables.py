"""The tables of a benchmark's page."""

from collections.abc import Iterable, Sequence
from math import ceil
from statistics import fmean, median, stdev

from fedtaco.benchmark.record import LAST_ROUNDS, BenchmarkRecord, EntryRecord, TaskRecord, Values
from fedtaco.benchmark.task_comparison import TaskComparison
from fedtaco.benchmark.tried_settings import (
    TriedSettings,
    fastest_accurate_settings,
    scores_by_rate,
    tried_with_all_seeds,
)
from fedtaco.printable import printable
from fedtaco.records.formatting import format_mean, format_target, pluralize
from fedtaco.report.table_formats import FormattedTable

MISSING = "–"
LATE = f"last {LAST_ROUNDS} rounds"


def overview_table(record: BenchmarkRecord, comparisons: Sequence[TaskComparison]) -> FormattedTable:
    """Return the mean accuracy of the last ten rounds, with one row per method and one column per task.

    The last column counts the tasks on which a method is significantly above and below the reference.
    """
    names = dict.fromkeys(entry.name for one in comparisons for entry in one.task.entries)
    rows = [
        [
            name,
            *(_percent(one.accuracies.get(name, {}).values()) for one in comparisons),
            f"{sum(name in one.significantly_above for one in comparisons)} / "
            f"{sum(name in one.significantly_below for one in comparisons)}"
            if any(name in one.p_values for one in comparisons)
            else MISSING,
        ]
        for name in names
    ]
    header = ["method", *(f"{one.task.name}, %" for one in comparisons)]
    return _table([*header, f"tasks significantly above / below {record.reference}"], rows)


def accuracy_table(comparison: TaskComparison) -> FormattedTable:
    """Return how accurate each method is on a task, and how it differs from the reference and the best other."""
    header = ["method", f"{LATE}, %", f"difference to {comparison.reference}", "p", "difference to the best other"]
    header += ["worst tenth, %", "last round, w, %", "last round, own output, %"]
    return _table(header, [_accuracy_row(comparison, entry) for entry in comparison.entries])


def _accuracy_row(comparison: TaskComparison, entry: EntryRecord) -> list[str]:
    name, finished = entry.name, [run for run in entry.evaluation if not run.stopped]
    p_value, best = comparison.p_values.get(name), comparison.best_other(name)
    to_reference = comparison.difference(name, comparison.reference) if name != comparison.reference else None
    to_best = comparison.difference(name, best)
    last = [run.accuracy[-1] for run in finished]
    outputs = [run.accuracy[-1] if run.output_accuracy is None else run.output_accuracy for run in finished]
    worst = [run.worst_tenth_accuracy for run in finished if run.worst_tenth_accuracy is not None]
    return [
        name,
        _percent(comparison.accuracies[name].values()),
        MISSING if to_reference is None else str(to_reference),
        MISSING if p_value is None else _format_p(p_value),
        MISSING if to_best is None else f"{to_best} ({best})",
        *(_percent(values) for values in (worst, last, outputs)),
    ]


def course_table(comparison: TaskComparison) -> FormattedTable:
    """Return how fast each method is on a task, and how steady."""
    header = [
        "method",
        f"rounds to {format_target(comparison.task.target)}",
        "seeds that reach it",
        f"earlier / later / same as {comparison.reference}",
        f"range of the {LATE}",
        "seeds that swing",
        "seeds that diverge",
    ]
    return _table(header, [_course_row(comparison, entry) for entry in comparison.entries])


def _course_row(comparison: TaskComparison, entry: EntryRecord) -> list[str]:
    runs, rounds = entry.evaluation, comparison.rounds_to_target(entry)
    ranges = [run.late_range for run in runs if run.late_range is not None]
    seeds = len(runs)
    return [
        entry.name,
        f"{comparison.rounds}+" if rounds.median is None else str(rounds.median),
        f"{rounds.reached} of {seeds}",
        f"{rounds.earlier} / {rounds.later} / {rounds.same}" if comparison.is_paired(entry.name) else MISSING,
        f"{100 * median(ranges):.1f}" if ranges else MISSING,
        f"{comparison.count_swings(entry)} of {seeds}",
        f"{sum(run.stopped is not None for run in runs)} of {seeds}",
    ]


def twins_table(comparison: TaskComparison, twins: Sequence[Sequence[str]]) -> FormattedTable:
    """Return the difference of each tailored method to the one with the mean coefficient for all clients."""
    known = comparison.accuracies
    rows = [
        [tailored, twin, MISSING if (found := comparison.difference(tailored, twin)) is None else str(found)]
        for tailored, twin in twins
        if tailored in known and twin in known
    ]
    return _table(["tailored", "mean coefficient", "difference"], rows)


def tuning_table(task: TaskRecord) -> FormattedTable:
    """Return the chosen settings of each method and control, and those with which it would have been fastest."""
    to_target, rounds = f"rounds to {format_target(task.target)}", int(task.settings["rounds"])
    header = ["method", "settings", "held-out accuracy, %", to_target, f"{to_target} at the fastest accurate setting"]
    tried = {entry.name: tried_with_all_seeds(entry.tuning, rounds) for entry in task.entries}
    fastest = fastest_accurate_settings(tried)
    rows = [_tuning_row(entry, tried[entry.name], fastest.get(entry.name), rounds) for entry in task.entries]
    return _table([*header, "settings tried", "runs that diverged"], rows)


def _tuning_row(
    entry: EntryRecord, tried: Sequence[TriedSettings], fastest: TriedSettings | None, rounds: int
) -> list[str]:
    count = len({frozenset(run.settings.items()) for run in entry.tuning})
    return [
        entry.name,
        _format_settings(entry.settings),
        _percent([run.validation_score or 0.0 for run in entry.tuning if run.settings == entry.settings]),
        next((_format_rounds(one, rounds) for one in tried if one.settings == entry.settings), MISSING),
        f"{_format_rounds(fastest, rounds)} ({_format_settings(fastest.settings)})" if fastest else MISSING,
        str(count) if count else "not tuned",
        str(sum(run.stopped is not None for run in entry.tuning)) if count else MISSING,
    ]


def _format_rounds(tried: TriedSettings, rounds: int) -> str:
    """Format the mean number of rounds to the target; ``50+`` if no run of 50 rounds reaches it."""
    return f"{rounds}+" if tried.rounds > rounds else f"{tried.rounds:.1f}"


def rates_table(task: TaskRecord, seed: int) -> FormattedTable:
    """Return the accuracy of each method on held-out samples at each local rate that was tried with a seed."""
    found = {entry.name: scores_by_rate(entry.tuning, seed) for entry in task.entries}
    scores = {name: own for name, own in found.items() if own}
    rates = sorted({rate for own in scores.values() for rate in own})
    rows = [
        [name, *(f"{100 * own[rate]:.1f}" if rate in own else MISSING for rate in rates)]
        for name, own in scores.items()
    ]
    return _table(["method", *(f"rate {rate:g}, %" for rate in rates)], rows)


def _format_settings(settings: Values) -> str:
    """Format the local rate and parameters, the latter without the method's name.

    >>> _format_settings({"local_lr": 0.1, "taco.gamma": 0.02})
    'local_lr=0.1, gamma=0.02'
    """
    return ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items()) or MISSING


def cost_table(record: BenchmarkRecord) -> FormattedTable:
    """Return what each method costs a client."""
    header = ["method", "gradients per step", "gradients over all samples per round", "vector operations per step"]
    header += ["vectors kept", "vectors received per round", "vectors sent per round"]
    rows = [
        [name, *map(str, (cost.gradients, cost.full_passes, cost.vector_ops, cost.memory, cost.down)), f"{cost.up:g}"]
        for name, cost in record.costs.items()
    ]
    return _table(header, rows)


def describe_ranking(comparison: TaskComparison) -> str:
    """Return sentences on which method is highest, and which differ significantly from the reference."""
    if not comparison.ranking:
        return "No method could be evaluated, because all runs diverged."
    best, reference = comparison.ranking[0], comparison.reference
    seeds = pluralize(len(comparison.accuracies[best]), "seed")
    start = f"{best} is highest, with {_percent(comparison.accuracies[best].values())} % ({seeds})"
    lead = comparison.difference(best, comparison.best_other(best))
    sentence = (
        f"{start}." if lead is None else f"{start}; difference to the next, {comparison.best_other(best)}: {lead}."
    )
    if not comparison.p_values:
        return sentence
    above, below = comparison.significantly_above, comparison.significantly_below
    sides = "; ".join(f"{side}: {', '.join(own) or 'none'}" for side, own in (("above", above), ("below", below)))
    return f"{sentence} Significantly different from {reference}, {sides}."


def _percent(values: Iterable[float]) -> str:
    """Format the mean of accuracies and their standard deviation, in percent."""
    known = list(values)
    if not known:
        return MISSING
    return format_mean(fmean(known), stdev(known) if len(known) > 1 else None, scale=100)


def _format_p(value: float) -> str:
    """Format a p-value, rounded up, so that one above a limit is not shown as the limit.

    >>> _format_p(0.0004), _format_p(0.034), _format_p(0.0501), _format_p(1.0)
    ('< 0.001', '0.034', '0.051', '1.000')
    """
    return "< 0.001" if value < 0.001 else f"{ceil(round(1000 * value, 6)) / 1000:.3f}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> FormattedTable:
    return FormattedTable([printable(one) for one in header], [[printable(cell) for cell in row] for row in rows], [])
