"""``fedtaco report``: one HTML page from run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from fedtaco.cli.options import say
from fedtaco.errors import InvalidInput

PATIENCE = 2.0
"""Seconds of reading after which a progress bar is shown."""


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders with run folders in them.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; report.html in the first folder by default.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Write a report on some runs of one dataset: one HTML page that needs no network.

    Examples:

      fedtaco report runs/digits

      fedtaco report runs/digits-taco-seed0 runs/digits-fedavg-seed0 --out report.html --open
    """
    from fedtaco.report.page import write_report
    from fedtaco.report.runs import find_runs

    folders = [folder for path in runs for folder in find_runs(path)]
    place = out or runs[0] / "report.html"
    if not place.parent.is_dir():
        raise InvalidInput(f"out is '{place}', but there is no folder {place.parent}.")
    if place.is_dir():
        raise InvalidInput(f"out is '{place}', which is a folder; name a file, such as {place / 'report.html'}.")
    with _progress() as tell:
        write_report(folders, place, tell)
    say(f"Written to {place}")
    if open_:
        typer.launch(place.resolve().as_uri())


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar over the rounds that are read, once reading takes long."""
    bar = Progress(console=Console(stderr=True), transient=True)
    task, began = bar.add_task("Reading rounds"), monotonic()

    def tell(done: int, total: int) -> None:
        if monotonic() - began > PATIENCE:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()
