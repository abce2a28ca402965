"""The trials of a sweep as a table."""

from collections.abc import Sequence
from typing import Any

from fedtaco.experiment.sweep import TrialResult, TunedMethod
from fedtaco.printable import printable
from fedtaco.records.formatting import format_mean
from fedtaco.records.method_summary import summarize_methods
from fedtaco.report.table_formats import FormattedTable

HEADER = ("setting", "held-out accuracy, %", "test accuracy, %", "")


def build_sweep_table(methods: Sequence[TunedMethod]) -> FormattedTable:
    """Return the trials of a sweep; formatted, the accuracy on the test set is shown for the best settings only."""
    trials = [(tuned, trial) for tuned in methods for trial in tuned.trials]
    varied = sorted({name for _, trial in trials for name in trial.point})
    return FormattedTable(
        list(HEADER),
        [_format_trial(tuned, trial) for tuned, trial in trials],
        [_to_record(tuned, trial, varied) for tuned, trial in trials],
    )


def trial_name(method: str, trial: TrialResult) -> str:
    """Name a trial by its method and settings, as the report does."""
    settings = ", ".join(f"{name.removeprefix(f'{method}.')}={value}" for name, value in trial.point.items())
    return printable(f"{method} ({settings})" if settings else method)


def _format_trial(tuned: TunedMethod, trial: TrialResult) -> list[str]:
    held_out = format_mean(trial.validation_accuracy, trial.validation_deviation, scale=100)
    (summary,) = summarize_methods(trial.summaries)
    test = format_mean(summary.accuracy, summary.accuracy_deviation, scale=100)
    name, mark = trial_name(tuned.method, trial), " ×" if trial.diverged else ""
    return [name, held_out + mark, *((test, "best") if trial in tuned.best else ("", ""))]


def _to_record(tuned: TunedMethod, trial: TrialResult, varied: list[str]) -> dict[str, Any]:
    (summary,) = summarize_methods(trial.summaries)
    return {
        "method": tuned.method,
        **{name: trial.point.get(name) for name in varied},
        "seeds": len(trial.summaries),
        "held_out_accuracy": trial.validation_accuracy,
        "held_out_accuracy_deviation": trial.validation_deviation,
        "final_accuracy": summary.accuracy,
        "final_accuracy_deviation": summary.accuracy_deviation,
        "diverged": trial.diverged,
        "best": trial in tuned.best,
    }
