"""``fedtaco reproduce``: the paper's tables and figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedtaco.cli.options import DATA_DIR_HELP, Overwrite, Resume, say
from fedtaco.errors import InvalidInput


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table or figure; without a name they are listed.")] = None,
    scale: Annotated[
        str, typer.Option(help="full (the paper's settings), small (a fifth of rounds and steps) or smoke (a trial).")
    ] = "full",
    datasets: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
    methods: Annotated[str, typer.Option(help="Only these, separated by commas.")] = "",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; 3 at full scale, else 1.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of the scale's.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Local steps instead of the scale's.")] = None,
    timing: Annotated[
        str,
        typer.Option(
            help="Where seconds come from: turns (a short serial run in which methods take turns) or measured (whole "
            "serial runs)."
        ),
    ] = "turns",
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; below runs/reproduce/ by default.")] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Reproduce a table or figure of the paper; its numbers stand in brackets beside ours.

    Examples:

      fedtaco reproduce

      fedtaco reproduce table-rounds --datasets adult --seeds 5

      fedtaco reproduce figure-gamma --scale small --datasets fmnist
    """
    from fedtaco.experiment.presets import load_preset, preset_names
    from fedtaco.experiment.reproduce import Scale

    console = Console()
    if name is None:
        table = Table("name", "what it shows")
        for known in preset_names():
            table.add_row(known, load_preset(known).title)
        console.print(table)
        return
    if timing not in ("turns", "measured"):
        raise InvalidInput(f"timing is '{timing}'; it must be turns or measured.")
    preset = load_preset(name).restricted(_names(datasets), _names(methods))
    folder = out or Path("runs") / "reproduce" / f"{name}-{scale}"
    wanted = Scale(scale, seeds, rounds, local_steps)
    manner = {"resume": resume, "overwrite": overwrite, "data_dir": data_dir}
    _run(preset, wanted, folder, manner, measured=timing == "measured", console=console)


def _run(preset: Any, scale: Any, folder: Path, manner: Any, *, measured: bool, console: Console) -> None:
    from fedtaco.cli.progress import ProgressBar, errors
    from fedtaco.experiment import Manner
    from fedtaco.experiment.reproduce import needs_runs, plan_reproduction, reproduce
    from fedtaco.records.files import storage
    from fedtaco.report import export, grid_of
    from fedtaco.report.labels import matplotlib_figure

    matplotlib_figure()
    jobs, cuts = plan_reproduction(preset, scale, **({"engine": "serial"} if measured else {}))
    for cut in cuts:
        errors.print(f"Cut, {cut}.", style="yellow", highlight=False)
    runs = [experiment for job in jobs for experiment in job.experiments if needs_runs(preset, measured=measured)]
    with ProgressBar(runs) as bar:
        result = reproduce(preset, jobs, cuts, folder, Manner(**manner), bar, measured=measured)
    grid = grid_of(result)
    table = Table(*grid.headers)
    for row in grid.rows:
        table.add_row(*row)
    console.print(table)
    console.print(result.caption, style="dim", highlight=False)
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
        written = ", ".join(path.name for path in export(result, folder))
    say(f"Written to {folder}: {written}")


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
