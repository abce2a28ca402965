"""The trials of a sweep as a table."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedtaco.cli.console import print_with_notes
from fedtaco.experiment.sweep import Sweep, TrialResult, TunedMethod
from fedtaco.printable import printable
from fedtaco.records.formatting import format_mean
from fedtaco.records.summary import summarize_methods
from fedtaco.report.table_formats import FormattedTable

HEADER = ("setting", "held-out accuracy, %", "test accuracy, %", "")
EXPLANATION = (
    "Held-out accuracy: on training samples that were held out, after the last round, mean over the seeds. The "
    "settings with the highest are best; the test set was not used to choose them."
)


def print_trials(sweep: Sweep) -> None:
    """Print every setting that was tried, with its accuracy on held-out samples, and which of them are best."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
    for title in HEADER:
        table.add_column(title, justify="right" if "%" in title else "left")
    for row in build_sweep_table(sweep).rows:
        table.add_row(*row, style="bold" if row[-1] else "")
    notes = [note for tuned in sweep.methods for note in tuned.notes]
    diverged = any(trial.diverged for tuned in sweep.methods for trial in tuned.trials)
    explanation = f"{EXPLANATION} ×: a run diverged; it counts as 0." if diverged else EXPLANATION
    print_with_notes(table, notes, [explanation])


def build_sweep_table(sweep: Sweep) -> FormattedTable:
    """Return the trials of a sweep; formatted, the accuracy on the test set is shown for the best settings only."""
    trials = [(tuned, trial) for tuned in sweep.methods for trial in tuned.trials]
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
