"""``fedtaco benchmark``: compare methods fairly, each tuned with the same budget and evaluated on fresh seeds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from fedtaco.cli.console import PlainConsole, print_line, print_with_notes, stderr
from fedtaco.cli.options import DataDir, Overwrite, Resume, Workers
from fedtaco.errors import InvalidInput
from fedtaco.parameters import split_names
from fedtaco.records.formatting import pluralize
from fedtaco.runs.options import RunOptions

if TYPE_CHECKING:
    from fedtaco.benchmark.presets import Preset

PAGE = "benchmark.html"
OUT_HELP = "Folder for the runs, by default one in runs/benchmark/; with --from, the page to write (.html or .md)."


def benchmark(
    preset: Annotated[str | None, typer.Argument(help="A preset, or a TOML file; omit it to list the presets.")] = None,
    tasks: Annotated[str, typer.Option(help="Only these tasks, separated by commas.")] = "",
    methods: Annotated[str, typer.Option(help="Only these methods, separated by commas.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show how many runs there would be.")] = False,
    from_: Annotated[
        Path | None, typer.Option("--from", help="Draw the page of this benchmark.json; nothing is run.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help=OUT_HELP)] = None,
    data_dir: DataDir = None,
    workers: Workers = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Tune methods with equal budgets, evaluate them on fresh seeds, and write a page with all figures.

    Examples:

      fedtaco benchmark

      fedtaco benchmark benchmark-mlp --dry-run

      fedtaco benchmark benchmark-mlp --tasks "adult dir0.1,adult dir0.5" --resume

      fedtaco benchmark --from runs/benchmark/benchmark-mlp/benchmark.json --out page.md
    """
    from fedtaco.benchmark.presets import load_preset, preset_names

    if from_ is not None:
        if preset or tasks or methods or dry_run or data_dir or workers or resume or overwrite:
            raise InvalidInput(
                "--from draws the page of runs that have ended; no other option than --out applies to it."
            )
        if not from_.exists():
            raise InvalidInput(f"There is no file {from_}; name the benchmark.json that 'fedtaco benchmark' wrote.")
        _redraw(from_, out or from_.with_name(PAGE))
        return
    if preset is None:
        table = Table("name", "what it compares")
        for name in preset_names():
            table.add_row(name, load_preset(name).title)
        PlainConsole().print(table)
        return
    chosen = load_preset(preset).select(split_names(tasks), split_names(methods))
    from fedtaco.benchmark.plan import refuse_code

    refuse_code(chosen, split_names(methods))
    if dry_run:
        _print_work(chosen)
    else:
        folder = out or Path("runs") / "benchmark" / chosen.name
        _run(chosen, folder, RunOptions(resume, overwrite, data_dir, workers))


def _run(preset: "Preset", folder: Path, options: RunOptions) -> None:
    from fedtaco.benchmark.page import findings, write_page
    from fedtaco.benchmark.runner import run_benchmark
    from fedtaco.report.labels import figure_class
    from fedtaco.runs.progress import ProgressBar

    figure_class()  # raises InvalidInput now, before anything is run, if matplotlib is missing

    def announce(stage: str, runs: int) -> None:
        print_line(f"{stage}: {pluralize(runs, 'run')}.", stderr)

    record = run_benchmark(preset, folder, options, ProgressBar(stderr), announce)
    write_page(record, folder / PAGE)
    overview, sentences = findings(record)
    table = Table(*overview.header, box=SIMPLE_HEAD)
    for row in overview.rows:
        table.add_row(*row)
    print_with_notes(table, sentences, [])
    print_line(f"Written to {folder}: {PAGE}, benchmark.json")


def _redraw(record: Path, page: Path) -> None:
    from fedtaco.benchmark.page import check_page, write_page
    from fedtaco.benchmark.record import read_record

    check_page(page)
    write_page(read_record(record), page)
    print_line(f"Written to {page}")


def _print_work(preset: "Preset") -> None:
    """Print how many runs a benchmark needs for each task, and how many gradients."""
    from fedtaco.benchmark.plan import estimate_work

    table = Table("task", "tuning runs", "evaluation runs", "client steps", box=SIMPLE_HEAD)
    work = [estimate_work(preset, task) for task in preset.tasks]
    for one in work:
        table.add_row(one.task, str(one.tuning_runs), str(one.evaluation_runs), f"{one.client_steps:,}")
    runs, steps = sum(one.tuning_runs + one.evaluation_runs for one in work), sum(one.client_steps for one in work)
    total = f"{pluralize(runs, 'run')}, {pluralize(steps, 'client step')} in all."
    explanation = (
        "A client step is one gradient on a batch: local steps times clients of a round times rounds, summed over "
        "runs; twice as many for a method that computes two gradients per step."
    )
    print_with_notes(table, [total], [explanation])
