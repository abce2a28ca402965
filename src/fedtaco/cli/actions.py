"""What the commands do, once torch is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from fedtaco.cli.progress import ProgressBar, errors
from fedtaco.errors import RunStopped
from fedtaco.experiment.build import method_class
from fedtaco.experiment.comparison import plan_comparison, run_comparison
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.runs import Manner, run_experiment
from fedtaco.experiment.sweep import Grid, Tuned, plan_sweep, run_sweep
from fedtaco.experiment.trackers import build_trackers
from fedtaco.experiment.watching import Everyone, Watcher
from fedtaco.records import RunFolder
from fedtaco.report import Comparison, as_percent, compare_runs, paired_differences

DEFAULT_VALIDATION = 0.1
"""What a sweep holds out unless told otherwise."""


@dataclass(frozen=True)
class How:
    """How runs are done, where they go, and who is told beside the progress bar."""

    manner: Manner
    out: Path | None
    track: Sequence[str]

    @contextmanager
    def watched(self, experiments: Sequence[Experiment]) -> Iterator[Watcher]:
        trackers = build_trackers(self.track)
        with ProgressBar(experiments) as bar:
            yield Everyone([bar, *trackers])


def run_one(settings: dict[str, Any], how: How) -> tuple[dict[str, Any], Path]:
    """Run one experiment with a progress bar; its summary and folder."""
    experiment = Experiment.of(**settings)
    name = method_class(experiment.method).name
    folder = RunFolder(how.out or Path("runs") / f"{experiment.dataset}-{name}-seed{experiment.seed}")
    try:
        with how.watched([experiment]) as watcher:
            run_experiment(experiment, folder, how.manner, watcher)
    except RunStopped as stop:
        raise RunStopped(f"{stop} What was recorded is in {folder.path}.") from stop
    summary = folder.summary()
    assert summary is not None
    return summary, folder.path


def compare(
    methods: Sequence[str], seeds: Sequence[int], settings: dict[str, Any], how: How
) -> tuple[list[dict[str, Any]], Path]:
    """Run a comparison with one progress bar; the summaries and the folder above all runs."""
    experiments = plan_comparison(methods, seeds, **settings)
    folder = how.out or Path("runs") / settings["dataset"]
    with how.watched(experiments) as watcher:
        summaries = run_comparison(experiments, folder, how.manner, watcher)
    for summary in summaries:
        if summary["stopped"]:
            errors.print(summary["stopped"], style="yellow", highlight=False, markup=False)
    return summaries, folder


def sweep(
    methods: Sequence[str],
    grid: Grid,
    seeds: Sequence[int],
    budget: int | None,
    settings: dict[str, Any],
    how: How,
) -> tuple[list[Tuned], Path]:
    """Run a sweep with one progress bar; the best of each method and the folder above all runs."""
    settings["validation"] = settings["validation"] or DEFAULT_VALIDATION
    trials = plan_sweep(methods, grid, seeds, budget, **settings)
    folder = how.out or Path("runs") / f"{settings['dataset']}-sweep"
    with how.watched([experiment for trial in trials for experiment in trial.experiments]) as watcher:
        return run_sweep(trials, folder, how.manner, watcher), folder


def print_tuned(tuned: Sequence[Tuned]) -> None:
    """The table a sweep ends with."""
    table = Table(
        caption="The setting with the best mean accuracy on the held-out part of the training data, after the last "
        "round; the test set had no say in it.",
        caption_justify="left",
    )
    for name in ("method", "tried", "best setting"):
        table.add_column(name)
    for name in ("held-out accuracy, %", "test accuracy, %"):
        table.add_column(name, justify="right")
    for one in tuned:
        (row,) = compare_runs(one.summaries)
        point = ", ".join(f"{name}={value}" for name, value in one.point.items())
        held_out = f"{100 * one.validation_accuracy:.1f}"
        table.add_row(one.method, str(one.tried), point or "–", held_out, accuracy_of(row))
    Console().print(table)


def accuracy_of(row: Comparison) -> str:
    spread = "" if row.accuracy_deviation is None else f" ± {100 * row.accuracy_deviation:.1f}"
    return "–" if row.accuracy is None else f"{100 * row.accuracy:.1f}{spread}"


def print_comparison(summaries: Sequence[Mapping[str, Any]]) -> None:
    """The table a comparison ends with."""
    rows = compare_runs(summaries)
    groups = sorted({group for row in rows for group in row.alpha})
    group_names, *alphas = _aligned([groups, *([_alpha(row, group) for group in groups] for row in rows)])
    target = summaries[0]["target"]
    differences = paired_differences(summaries, rows[0].method)
    timed = any(row.client_seconds is not None for row in rows)
    headings = [
        "final\naccuracy",
        *([f"less\n{rows[0].method}'s"] if differences else []),
        "worst\ntenth",
        f"rounds\nto {as_percent(target)}",
        *(["client\nseconds"] if timed else []),
        "α" if groups == ["all"] else f"α\n{group_names}",
    ]
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
    table.add_column("\nmethod", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row, alpha in zip(rows, alphas, strict=True):
        table.add_row(
            row.method,
            accuracy_of(row),
            *([str(differences.get(row.method, "–"))] if differences else []),
            "–" if row.worst_tenth_accuracy is None else f"{100 * row.worst_tenth_accuracy:.1f}",
            row.rounds_to_target,
            *(["–" if row.client_seconds is None else f"{row.client_seconds:.2f}"] if timed else []),
            alpha,
        )
    console = Console()
    console.print(table)
    console.print(f"\n{_caption(rows, summaries)}", style="dim", highlight=False)


def _alpha(row: Comparison, group: str) -> str:
    return f"{row.alpha[group]:.2f}".lstrip("0") if group in row.alpha else "–"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines of words, each word ending below the one above.

    >>> _aligned([["A", "rest"], [".23", ".9"]])
    ['  A rest', '.23   .9']
    """
    widths = [max(map(len, words)) for words in zip(*lines, strict=True)]
    return [" ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)) for line in lines]


def _caption(rows: Sequence[Comparison], summaries: Sequence[Mapping[str, Any]]) -> str:
    rounds, target = max(summary["rounds"] for summary in summaries), summaries[0]["target"]
    seeds = max(row.seeds for row in rows)
    over_seeds = f", mean ± deviation over {seeds} seeds" if seeds > 1 else ""
    parts = [
        f"Test accuracy in % after {rounds} round{'' if rounds == 1 else 's'}{over_seeds}. Worst tenth: of the "
        "clients, each by its own mix of labels. α: TACO's coefficient, the larger the more an upload is in line with "
        "others."
    ]
    if seeds > 1 and len(rows) > 1:
        parts.append("In brackets: the difference's 95 % confidence interval over paired seeds.")
    if any(row.client_seconds is not None for row in rows):
        parts.append(
            "Client seconds: the slowest client's, summed over rounds; to compare methods by them use --engine serial, "
            "with which runs do not go side by side."
        )
    if "C" in rows[0].alpha:
        parts.append("A, B, C: groups of clients, from one-sided labels (A) to even ones (C).")
    marks = {row.rounds_to_target for row in rows}
    if any(mark.endswith("+") for mark in marks):
        parts.append(f"{rounds}+: not reached in {rounds} rounds.")
    if "×" in marks:
        parts.append(f"×: diverged, or ended below nine tenths of {as_percent(target)}.")
    for row in rows:
        if 0 < row.stopped < row.seeds:
            parts.append(f"{row.method}: {row.stopped} of {row.seeds} seeds diverged; the means leave them out.")
        if row.output_accuracy is not None:
            parts.append(f"{row.method}'s own output z: {row.output_accuracy:.1%}.")
        if row.freeloaders:
            parts.append(
                f"{row.method}: {row.caught} of {row.freeloaders} misbehaving clients were expelled, "
                f"and {row.wronged} honest ones."
            )
        elif row.wronged:
            parts.append(f"{row.method}: {row.wronged} clients were expelled.")
        if row.dropped_uploads:
            parts.append(f"{row.method}: {row.dropped_uploads} uploads were left out.")
    notes = {note for summary in summaries for note in summary["partition_notes"]}
    return " ".join([*parts, *sorted(notes)])
