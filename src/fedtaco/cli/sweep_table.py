"""Print the trials of a sweep as a table."""

from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedtaco.cli.console import print_with_notes
from fedtaco.experiment.results import Sweep
from fedtaco.experiment.sweep_table import HEADER

EXPLANATION = (
    "Held-out accuracy: on training samples that were held out, after the last round, mean over the seeds. The "
    "settings with the highest are best; the test set was not used to choose them."
)


def print_trials(sweep: Sweep) -> None:
    """Print every setting that was tried, with its accuracy on held-out samples, and which of them are best."""
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
    for title in HEADER:
        table.add_column(title, justify="right" if "%" in title else "left")
    for row in sweep.table().rows:
        table.add_row(*row, style="bold" if row[-1] else "")
    notes = [note for tuned in sweep.methods for note in tuned.notes]
    diverged = any(trial.diverged for tuned in sweep.methods for trial in tuned.trials)
    explanation = f"{EXPLANATION} ×: a run diverged; it counts as 0." if diverged else EXPLANATION
    print_with_notes(table, notes, [explanation])
