"""``fedtaco reproduce``: reproduce the paper's tables and figures by name."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedtaco.cli.console import PlainConsole, print_line, stderr
from fedtaco.cli.options import DataDir, Overwrite, Resume
from fedtaco.errors import InvalidInput
from fedtaco.parameters import split_names
from fedtaco.settings.checks import check_seeds

SCALE_HELP = "full (the paper's settings), small (a fifth of the rounds and steps) or smoke (a quick test)."
TIMING_HELP = (
    "How to measure seconds: turns (short serial runs in which methods take turns) or measured (whole serial runs)."
)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure; omit it to list them all.")] = None,
    scale: Annotated[str, typer.Option(help=SCALE_HELP)] = "full",
    datasets: Annotated[str, typer.Option(help="Only these datasets, separated by commas.")] = "",
    methods: Annotated[str, typer.Option(help="Only these methods, separated by commas.")] = "",
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; by default 3 at full scale, else 1.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds, instead of the scale's.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Number of local steps, instead of the scale's.")] = None,
    timing: Annotated[str, typer.Option(help=TIMING_HELP)] = "turns",
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; by default one in runs/reproduce/.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Reproduce a table or figure of the paper; the paper's numbers are shown in brackets beside ours.

    Examples:

      fedtaco reproduce

      fedtaco reproduce table-rounds --datasets adult --seeds 5

      fedtaco reproduce figure-gamma --scale small --datasets fmnist
    """
    from fedtaco.reproduce.presets import load_preset, preset_names

    console = PlainConsole()
    if name is None:
        presets = Table("name", "what it shows")
        for known in preset_names():
            presets.add_row(known, load_preset(known).title)
        console.print(presets)
        return
    if timing not in ("turns", "measured"):
        raise InvalidInput(f"timing is '{timing}'; it must be turns or measured.")
    if seeds is not None:
        check_seeds(seeds)
    preset = load_preset(name).select(split_names(datasets), split_names(methods))
    from fedtaco.files import writing_run
    from fedtaco.report.labels import figure_class
    from fedtaco.reproduce.export import export
    from fedtaco.reproduce.plan import Scale, plan_reproduction
    from fedtaco.reproduce.runner import run_plan
    from fedtaco.reproduce.tables import build_table
    from fedtaco.runs.callbacks import following
    from fedtaco.runs.options import RunOptions
    from fedtaco.runs.progress import ProgressBar

    figure_class()  # raises InvalidInput now, before anything is run, if matplotlib is missing
    plan = plan_reproduction(preset, Scale(scale, seeds, rounds, local_steps), measured=timing == "measured")
    folder = out or Path("runs") / "reproduce" / f"{name}-{scale}"
    for reduction in plan.reductions:
        print_line(f"Reduced settings, {reduction}.", stderr, style="yellow")
    bar = ProgressBar(stderr)
    with following(bar, [spec.config for spec, _ in plan.runs]):
        result = run_plan(plan, folder, RunOptions(resume, overwrite, data_dir), bar)
    text = build_table(result)
    table = Table(*text.header)
    for row in text.rows:
        table.add_row(*row)
    console.print(table)
    console.print(result.caption, style="dim")
    with writing_run(folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = ", ".join(path.name for path in export(result, folder))
    print_line(f"Written to {folder}: {written}")
