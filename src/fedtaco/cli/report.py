"""``fedtaco report``: write an HTML page about runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.progress import Progress

from fedtaco.cli.console import PlainConsole, print_line

OUT_HELP = "File to write, of any of these suffixes; report.html in the first folder by default."
PATIENCE = 2.0
"""Seconds of reading after which the progress bar appears."""


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders that contain run folders.")],
    out: Annotated[Path | None, typer.Option(help=OUT_HELP)] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the file, a page in a browser.")] = False,
) -> None:
    """Write a report on runs of one dataset: a single HTML page that opens without a network.

    The suffix of --out decides what is written: .html the page; .tex, .csv, .md or .json the results table; .pdf, .png
    or .svg a figure of accuracy over rounds.

    Examples:

      fedtaco report runs/digits

      fedtaco report runs/digits-taco-seed0 runs/digits-fedavg-seed0 --out report.html --open

      fedtaco report runs/digits --out table.tex
    """
    from fedtaco.report import find_runs, write_report

    folders = [folder for path in runs for folder in find_runs(path)]
    page = out or runs[0] / "report.html"
    with _progress_bar() as on_progress:
        write_report(folders, page, on_progress)
    print_line(f"Written to {page}")
    if open_:
        typer.launch(page.resolve().as_uri())


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that advances a bar by the rounds read; the bar appears after ``PATIENCE`` seconds."""
    bar = Progress(console=PlainConsole(stderr=True), transient=True)
    task, started = bar.add_task("Reading rounds"), monotonic()

    def on_progress(done: int, total: int) -> None:
        if monotonic() - started > PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield on_progress
    finally:
        if bar.live.is_started:
            bar.stop()
