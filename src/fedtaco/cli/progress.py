"""The live progress bar, on standard error so that results can be piped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedtaco.records import RoundRecord

errors = Console(stderr=True)


class Tell(Protocol):
    """Tells the progress bar of a finished round."""

    def __call__(self, title: str, record: RoundRecord, done: int) -> None: ...


@contextmanager
def progress(rounds: int) -> Iterator[Tell]:
    """A bar over all rounds that are to come, with the newest accuracy beside it."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("starting", total=rounds)

        def tell(title: str, record: RoundRecord, done: int) -> None:
            accuracy = "" if record.accuracy is None else f" {record.accuracy:6.1%}"
            bar.update(task, completed=done, description=f"{title}{accuracy}")
            for client, reason in record.dropped.items():
                bar.console.print(f"{title}, round {record.round}: client {client} left out, {reason}.", style="yellow")

        yield tell
