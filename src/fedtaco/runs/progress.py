"""A progress bar for runs, in terminals and notebooks."""

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from fedtaco.printable import printable
from fedtaco.records import MISSED_DEADLINE, NO_ANSWER, RoundRecord
from fedtaco.runs.callbacks import Callback, Run

MAX_LINE = 10_000
"""Maximum number of characters in a line that is printed above the bar."""
SECONDS_PER_LINE = 60
"""Seconds between lines about the progress, where no bar can be shown."""


class ProgressBar(Callback):
    """Shows a bar for all rounds of one or several runs, with the latest accuracy beside it.

    Where no bar can be shown, as in a log file, a line is printed every minute.

    Parameters
    ----------
    console
        Where to show it; on standard error by default, or in the cell of a notebook.

    Examples
    --------
    >>> import fedtaco
    >>> result = fedtaco.run("taco", rounds=3, callbacks=[ProgressBar()])  # doctest: +SKIP
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.bar = self._new_bar()

    def on_begin(self, configs: Sequence[Mapping[str, Any]]) -> None:
        self.done: dict[Run, int] = {}
        self.accuracies: dict[Run, str] = {}
        self.engines_shown: set[str] = set()
        self.warned: set[Run] = set()
        self.varied = _varied_values(configs)
        self.bar = self._new_bar()
        self.total = sum(config["rounds"] for config in configs)
        self.task = self.bar.add_task("starting", total=self.total, visible=self.total > 0)
        self.timing = self.bar.add_task("timing by turns", visible=False)
        self.last_line = monotonic()
        self.bar.start()

    def on_run_begin(self, run: Run) -> None:
        self.done[run] = len(run.history)
        if any(record.warning is not None for record in run.history):
            self.warned.add(run)
        if run.engine not in self.engines_shown:
            self.engines_shown.add(run.engine)
            self._print(f"Engine {run.engine}.", "dim")

    def on_evaluation_begin(self, run: Run, round_number: int) -> None:
        self.bar.update(self.task, description=printable(f"{run} evaluating"))

    def on_round_end(self, run: Run, record: RoundRecord) -> None:
        if record.accuracy is not None:
            self.accuracies[run] = f" {record.accuracy:6.1%}"
        self._advance(run, record.round, f"{run}{self.accuracies.get(run, '')}")
        events = list(_events(record))
        if record.warning is not None and run not in self.warned:
            self.warned.add(run)
            events.append(record.warning)
        for event in events:
            self._print(f"{self._name(run)}, round {record.round}: {event}.", "yellow")

    def on_run_end(self, run: Run, summary: Mapping[str, Any]) -> None:
        self._advance(run, run.config["rounds"], f"{run} is done")

    def on_run_skipped(self, run: Run) -> None:
        self._advance(run, run.config["rounds"], f"{run} is done")

    def on_timing_turn(self, done: int, turns: int) -> None:
        self.bar.update(self.timing, completed=done, total=turns, visible=True)

    def on_end(self) -> None:
        self.bar.stop()

    def _new_bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description:<28}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )

    def _advance(self, run: Run, rounds: int, description: str) -> None:
        self.done[run] = rounds
        done = sum(self.done.values())
        self.bar.update(self.task, completed=done, description=printable(description))
        shows_bar = self.console.is_terminal or self.console.is_jupyter
        if not shows_bar and monotonic() - self.last_line >= SECONDS_PER_LINE:
            self.last_line = monotonic()
            latest = " ".join(description.split())
            self._print(f"{done:,} of {self.total:,} rounds are done; the latest: {latest}.", "dim")

    def _name(self, run: Run) -> str:
        """Return the method, what distinguishes the run from others of the same method, and the seed."""
        method, varied = run.config["method"], self.varied[run.config["method"]]
        own = {name: value for name, value in _values(run.config).items() if name in varied}
        return " ".join([method, *(f"{name}={value}" for name, value in own.items()), f"seed {run.config['seed']}"])

    def _print(self, sentence: str, style: str) -> None:
        """Print a line above the bar."""
        self.console.print(Text(printable(sentence, MAX_LINE), style), soft_wrap=True)


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings and parameters of a run, without its method and seed."""
    values = {**config, **config.get("parameters", {})}
    return {name: value for name, value in values.items() if name not in ("method", "seed", "parameters")}


def _varied_values(configs: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the settings and parameters that differ between runs of a method, for each method."""
    found: dict[str, dict[str, set[str]]] = {}
    for config in configs:
        seen = found.setdefault(config["method"], {})
        for name, value in _values(config).items():
            seen.setdefault(name, set()).add(str(value))
    return {method: {name for name, values in seen.items() if len(values) > 1} for method, seen in found.items()}


def _events(record: RoundRecord) -> Iterator[str]:
    """Describe dropped uploads and expelled clients of a round; clients with the same reason are listed together.

    Clients that do not answer because the settings say so are not worth a line, unless they are all clients.
    """
    gathered: dict[tuple[str, str], list[int]] = {}
    expected = (NO_ANSWER, MISSED_DEADLINE)
    if record.dropped and len(record.dropped) == record.cohort and set(record.dropped.values()) <= set(expected):
        yield "no client answered in time, so the model stays as it was"
    for client, reason in record.dropped.items():
        if reason in expected:
            continue
        gathered.setdefault(("dropped", reason), []).append(client)
    for decision in record.decisions:
        if decision.action == "expelled":
            gathered.setdefault(("expelled", decision.reason), []).append(decision.client)
    for (action, reason), clients in gathered.items():
        who = f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"
        yield f"{who} {action}: {reason}"
