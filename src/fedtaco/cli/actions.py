"""What the commands do, once torch is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedtaco.cli.progress import ProgressBar, errors
from fedtaco.errors import RunStopped
from fedtaco.experiment.build import method_class
from fedtaco.experiment.comparison import plan_comparison, run_comparison
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.runs import Manner, run_experiment
from fedtaco.records import RunFolder
from fedtaco.report import Comparison, compare_runs


def run_one(
    settings: dict[str, Any], out: Path | None, *, resume: bool, overwrite: bool
) -> tuple[dict[str, Any], Path]:
    """Run one experiment with a progress bar; its summary and folder."""
    manner = Manner(resume, overwrite, settings.pop("data_dir"), settings.pop("workers"))
    experiment = Experiment.of(**settings)
    name = method_class(experiment.method).name
    folder = RunFolder(out or Path("runs") / f"{experiment.dataset}-{name}-seed{experiment.seed}")
    try:
        with ProgressBar([experiment]) as bar:
            run_experiment(experiment, folder, manner, bar)
    except RunStopped as stop:
        raise RunStopped(f"{stop} What was recorded is in {folder.path}.") from stop
    summary = folder.summary()
    assert summary is not None
    return summary, folder.path


def compare(
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: dict[str, Any],
    out: Path | None,
    *,
    resume: bool,
    overwrite: bool,
) -> tuple[list[dict[str, Any]], Path]:
    """Run a comparison with one progress bar; the summaries and the folder above all runs."""
    manner = Manner(resume, overwrite, settings.pop("data_dir"), settings.pop("workers"))
    experiments = plan_comparison(methods, seeds, **settings)
    folder = out or Path("runs") / settings["dataset"]
    with ProgressBar(experiments) as bar:
        summaries = run_comparison(experiments, folder, manner, bar)
    for summary in summaries:
        if summary["stopped"]:
            errors.print(summary["stopped"], style="yellow", highlight=False)
    return summaries, folder


def print_comparison(summaries: Sequence[Mapping[str, Any]]) -> None:
    """The table a comparison ends with."""
    rows = compare_runs(summaries)
    groups = sorted({group for row in rows for group in row.alpha})
    target = summaries[0]["target"]
    table = Table(caption=_caption(rows, summaries), caption_justify="left")
    table.add_column("method")
    table.add_column("final accuracy", justify="right")
    table.add_column(f"rounds to {target:.0%}", justify="right")
    table.add_column("client seconds", justify="right")
    for group in groups:
        table.add_column(f"mean α {group}", justify="right")
    for row in rows:
        spread = "" if row.accuracy_deviation is None else f" ± {100 * row.accuracy_deviation:.1f}"
        accuracy = "–" if row.accuracy is None else f"{100 * row.accuracy:.1f}{spread} %"
        table.add_row(
            row.method,
            accuracy,
            row.rounds_to_target,
            f"{row.client_seconds:.2f}",
            *(f"{row.alpha[group]:.2f}" if group in row.alpha else "–" for group in groups),
        )
    Console().print(table)


def _caption(rows: Sequence[Comparison], summaries: Sequence[Mapping[str, Any]]) -> str:
    rounds, target = max(summary["rounds"] for summary in summaries), summaries[0]["target"]
    seeds = max(row.seeds for row in rows)
    over_seeds = f", mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    parts = [
        f"Test accuracy after {rounds} round{'' if rounds == 1 else 's'}{over_seeds}. Client seconds: the slowest "
        "client's, summed over rounds. α: TACO's coefficient, the larger the more an upload is in line with the others."
    ]
    if "C" in rows[0].alpha:
        parts.append("A, B, C: the clients with 10, 20 and 50 % of the labels.")
    marks = {row.rounds_to_target for row in rows}
    if any(mark.endswith("+") for mark in marks):
        parts.append(f"{rounds}+: not reached in {rounds} rounds.")
    if "×" in marks:
        parts.append(f"×: diverged, or ended below nine tenths of {target:.0%}.")
    for row in rows:
        if row.output_accuracy is not None:
            parts.append(f"{row.method}'s own output z: {row.output_accuracy:.1%}.")
        if row.expelled:
            parts.append(f"{row.method}: {row.expelled} clients were expelled.")
        if row.dropped_uploads:
            parts.append(f"{row.method}: {row.dropped_uploads} uploads were left out.")
    notes = {note for summary in summaries for note in summary["partition_notes"]}
    return " ".join([*parts, *sorted(notes)])
