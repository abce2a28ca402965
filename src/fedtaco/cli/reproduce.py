"""``fedtaco reproduce``: the paper's tables and figures by name."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedtaco.cli.options import DataDir, Overwrite, Resume, print_line, split_names
from fedtaco.errors import InvalidInput

SCALE_HELP = "full (the paper's settings), small (a fifth of the rounds and steps) or smoke (a quick try)."
TIMING_HELP = (
    "Source of seconds: turns (a short serial run in which methods take turns) or measured (whole serial runs)."
)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure; omit it to list them all.")] = None,
    scale: Annotated[str, typer.Option(help=SCALE_HELP)] = "full",
    datasets: Annotated[str, typer.Option(help="Only these datasets, separated by commas.")] = "",
    methods: Annotated[str, typer.Option(help="Only these methods, separated by commas.")] = "",
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; by default 3 at full scale, else 1.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds, instead of the scale's.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Local steps, instead of the scale's.")] = None,
    timing: Annotated[str, typer.Option(help=TIMING_HELP)] = "turns",
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; below runs/reproduce/ by default.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Reproduce a table or figure of the paper; the paper's numbers stand in brackets beside ours.

    Examples:

      fedtaco reproduce

      fedtaco reproduce table-rounds --datasets adult --seeds 5

      fedtaco reproduce figure-gamma --scale small --datasets fmnist
    """
    from fedtaco.reproduce.presets import load_preset, preset_names

    console = Console()
    if name is None:
        presets = Table("name", "what it shows")
        for known in preset_names():
            presets.add_row(known, load_preset(known).title)
        console.print(presets)
        return
    if timing not in ("turns", "measured"):
        raise InvalidInput(f"timing is '{timing}'; it must be turns or measured.")
    preset = load_preset(name).select(split_names(datasets), split_names(methods))
    from fedtaco.cli.progress import ProgressBar, errors
    from fedtaco.records.files import writing_run
    from fedtaco.report.labels import figure_class
    from fedtaco.reproduce.export import export
    from fedtaco.reproduce.plan import Scale, plan_reproduction
    from fedtaco.reproduce.runner import run_plan
    from fedtaco.reproduce.tables import build_table
    from fedtaco.runs.settings import RunOptions

    figure_class()  # reports a missing matplotlib before anything is run
    plan = plan_reproduction(preset, Scale(scale, seeds, rounds, local_steps), measured=timing == "measured")
    folder = out or Path("runs") / "reproduce" / f"{name}-{scale}"
    for reduction in plan.reductions:
        errors.print(f"Reduced settings, {reduction}.", style="yellow", highlight=False)
    with ProgressBar([config for config, _ in plan.runs]) as bar:
        result = run_plan(plan, folder, RunOptions(resume, overwrite, data_dir), bar)
    text = build_table(result)
    table = Table(*text.headers)
    for row in text.rows:
        table.add_row(*row)
    console.print(table)
    console.print(result.caption, style="dim", highlight=False)
    with writing_run(folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = ", ".join(path.name for path in export(result, folder))
    print_line(f"Written to {folder}: {written}")
