"""The progress bar; it is printed on standard error, so that results on standard output can be piped."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedtaco.cli.console import print_line, stderr
from fedtaco.engines import EngineChoice
from fedtaco.experiment.config import describe_run
from fedtaco.records import RoundRecord
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.settings import ExperimentConfig


class ProgressBar(Callback):
    """Shows a bar for all rounds of several runs, with the latest accuracy beside it."""

    def __init__(self, configs: Sequence[ExperimentConfig]) -> None:
        self.done = {id(config): 0 for config in configs}
        self.accuracies: dict[int, str] = {}
        """The latest accuracy of each run, as text."""
        self.engines_shown: set[str] = set()
        self.bar = Progress(
            TextColumn("{task.description:<28}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=stderr,
            transient=True,
        )
        rounds = sum(config["rounds"] for config in configs)
        self.task = self.bar.add_task("starting", total=rounds, visible=rounds > 0)
        self.timing = self.bar.add_task("timing by turns", visible=False)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_run_begin(self, config: ExperimentConfig, folder: Path | None, engine: EngineChoice) -> None:
        if str(engine) not in self.engines_shown:
            self.engines_shown.add(str(engine))
            print_line(f"Engine {engine}.", stderr, style="dim")

    def on_evaluation_begin(self, config: ExperimentConfig, round_number: int) -> None:
        self.bar.update(self.task, description=f"{describe_run(config)} evaluating")

    def on_round_end(self, config: ExperimentConfig, record: RoundRecord) -> None:
        title = describe_run(config)
        if record.accuracy is not None:
            self.accuracies[id(config)] = f" {record.accuracy:6.1%}"
        self._advance(config, record.round, f"{title}{self.accuracies.get(id(config), '')}")
        for event in _events(record):
            print_line(f"{title}, round {record.round}: {event}.", stderr, style="yellow")

    def on_run_skipped(self, config: ExperimentConfig) -> None:
        self._advance(config, config["rounds"], f"{describe_run(config)} is done")

    def on_timing_turn(self, done: int, turns: int) -> None:
        self.bar.update(self.timing, completed=done, total=turns, visible=True)

    def _advance(self, config: ExperimentConfig, rounds: int, description: str) -> None:
        self.done[id(config)] = rounds
        self.bar.update(self.task, completed=sum(self.done.values()), description=description)


def _events(record: RoundRecord) -> Iterator[str]:
    """Describe dropped uploads and expelled clients of a round; clients with the same reason are listed together."""
    gathered: dict[tuple[str, str], list[int]] = {}
    for client, reason in record.dropped.items():
        gathered.setdefault(("dropped", reason), []).append(client)
    for decision in record.decisions:
        if decision.action == "expelled":
            gathered.setdefault(("expelled", decision.reason), []).append(decision.client)
    for (action, reason), clients in gathered.items():
        who = f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"
        yield f"{who} {action}: {reason}"
