#!/usr/bin/env python3
"""Write the tables and figures of docs/freeloaders.md from the runs of scripts/run_freeloaders.py.

Each table replaces the text between two markers of the page. Campaigns, which are subfolders of runs, are skipped if
one of their runs is unfinished.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from matplotlib.figure import Figure
from pages import DOCS, finished_runs, markdown_table, subfolders, write_sections

from fedtaco.records import ClientRecord, History, PartitionRecord, RunFolder
from fedtaco.records.detection_rates import Rates, auroc, expulsions, threshold_rates
from fedtaco.records.formatting import format_count, format_mean
from fedtaco.trust import Behaviour, parse_behaviour
from fedtaco.trust.behaviours import Freeloader

KAPPA, LIMIT = 0.6, "T/5"
"""The paper's κ and λ."""
COPIES, NOISE = ("replay", "replay-scaled", "zero"), ("replay-noise", "disguised", "random")
"""Behaviours whose uploads contain nothing new, and behaviours whose uploads contain noise."""
BLUE, ORANGE = "#0072B2", "#E69F00"
MISSING = "–"

Key = TypeVar("Key")
Score = Callable[[ClientRecord], float | None]
"""Reads a score of an upload; ``None`` if it was not computed."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tables and figures of docs/freeloaders.md.")
    parser.add_argument("folder", type=Path, help="the folder that scripts/run_freeloaders.py wrote")
    folder = parser.parse_args().folder
    campaigns = {path.name: [Run(run) for run in finished_runs(path)] for path in subfolders(folder)}
    tables: dict[str, str] = {}
    for dataset in ("adult", "fmnist"):
        guarded, unguarded = campaigns.get(f"{dataset}-guard", []), campaigns.get(f"{dataset}-off", [])
        if guarded and unguarded:
            tables[dataset] = behaviour_table(guarded, unguarded)
            tables[f"{dataset}-partitions"] = partition_table(guarded, unguarded)
            tables[f"{dataset}-areas"] = score_table(guarded, unguarded)
            draw_scores(guarded, unguarded, DOCS / "images" / f"freeloaders-{dataset}.svg")
    if campaigns.get("adult-few"):
        tables["adult-few"] = count_table(campaigns["adult-few"])
    if campaigns.get("adult-full"):
        tables["adult-full"] = full_setting_table(campaigns["adult-full"])
    write_sections(DOCS / "freeloaders.md", tables)
    print(f"Tables written: {', '.join(tables)}." if tables else "No table was written: no campaign is finished.")


@dataclass(frozen=True)
class Run:
    """One run, whose files are read when they are first needed."""

    folder: RunFolder

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.folder.config()

    @cached_property
    def partition(self) -> PartitionRecord:
        return self.folder.partition()

    @cached_property
    def history(self) -> History:
        return self.folder.history()

    @cached_property
    def summary(self) -> dict[str, Any]:
        return self.folder.summary() or {}

    @property
    def partition_name(self) -> str:
        return str(self.config["partition"])

    @property
    def behaviour_name(self) -> str:
        """The behaviour as it was configured; ``none`` if no client misbehaves."""
        return str(self.config.get("behaviour", "none"))

    @cached_property
    def behaviour(self) -> Behaviour | None:
        return None if self.behaviour_name == "none" else parse_behaviour(self.behaviour_name)

    @property
    def has_attackers(self) -> bool:
        """Whether the misbehaving clients are attackers, which train, instead of freeloaders."""
        return self.behaviour is not None and not isinstance(self.behaviour, Freeloader)

    @cached_property
    def freeloaders(self) -> frozenset[int]:
        """The clients that misbehave, as freeloaders or attackers."""
        return frozenset(self.partition.freeloaders)

    @property
    def rates(self) -> Rates:
        return Rates.of(expulsions(self.history), self.partition)

    @cached_property
    def paper_rates(self) -> Rates:
        """Rates of the paper's rule, computed from the recorded α; the run must be without a detector."""
        return threshold_rates(self.history, self.partition)[KAPPA, LIMIT]

    @property
    def rounds_to_detection(self) -> list[int]:
        """For each expelled freeloader, the rounds from its first misbehaviour to its expulsion, both included."""
        first = next(number for number in range(1, self.config["rounds"] + 1) if self.is_round_of_misbehaviour(number))
        expelled = expulsions(self.history)
        return [expelled[client] - first + 1 for client in sorted(self.freeloaders) if client in expelled]

    @property
    def dropped_honest_uploads(self) -> int:
        return sum(client not in self.freeloaders for record in self.history for client in record.dropped)

    @property
    def freeloader_weight(self) -> float:
        return float(self.summary["detection"]["freeloader_weight"])

    def is_round_of_misbehaviour(self, number: int) -> bool:
        """Return whether the misbehaving clients misbehave in this round; attackers do so in every round."""
        if not isinstance(self.behaviour, Freeloader):
            return self.behaviour is not None
        return self.behaviour.freeloads(number, self.config["rounds"])

    def misbehaves(self, record: ClientRecord) -> bool:
        """Return whether the client of a record misbehaved in the round of the record."""
        return record.client in self.freeloaders and self.is_round_of_misbehaviour(record.round)

    def records(self, *, of_freeloaders: bool) -> Iterator[ClientRecord]:
        """Yield the records of the freeloaders or of the honest clients."""
        return (record for record in self.history.clients if (record.client in self.freeloaders) == of_freeloaders)


def alpha(record: ClientRecord) -> float | None:
    return record.quantities["alpha"]


def new_part(record: ClientRecord) -> float | None:
    """Return the fraction of the upload that is new, as the guard measured it."""
    return record.scores.get("new")


def explained_part(record: ClientRecord) -> float | None:
    """Return the fraction of the new part that other uploads explain, as the guard measured it."""
    return record.scores.get("explained")


def known_scores(score: Score, records: Iterable[ClientRecord]) -> list[float]:
    """Return the score of every record that has one."""
    return [value for record in records if (value := score(record)) is not None]


def behaviour_table(guarded: Sequence[Run], unguarded: Sequence[Run]) -> str:
    """Return a table with one row per behaviour, over all partitions and seeds."""
    without_guard = group(unguarded, lambda run: run.behaviour_name)
    headers = [
        "behaviour",
        "runs",
        "TPR",
        "FPR",
        "honest uploads dropped",
        "rounds to detection",
        "accuracy (without)",
        "freeloaders' weight (without)",
        "paper's TPR",
        "paper's FPR",
    ]
    rows = []
    for name, runs in by_behaviour(guarded):
        with_freeloaders, without = [run for run in runs if run.freeloaders], without_guard.get(name, [])
        rows.append(
            [
                f"`{name}`" if with_freeloaders else "no freeloaders",
                len(runs),
                percent(run.rates.true_positive for run in with_freeloaders),
                percent(run.rates.false_positive for run in runs),
                sum(run.dropped_honest_uploads for run in runs),
                mean_rounds_to_detection(with_freeloaders),
                f"{accuracy(runs)} ({accuracy(without)})",
                f"{weight(runs)} ({weight(without)})" if with_freeloaders else "",
                percent(run.paper_rates.true_positive for run in without if run.freeloaders),
                percent(run.paper_rates.false_positive for run in without),
            ]
        )
    return markdown_table(headers, rows)


def partition_table(guarded: Sequence[Run], unguarded: Sequence[Run]) -> str:
    """Return a table with one row per partition, over all behaviours except those of attackers."""
    without_guard = group([run for run in unguarded if not run.has_attackers], lambda run: run.partition_name)
    with_guard = group([run for run in guarded if not run.has_attackers], lambda run: run.partition_name)
    headers = [
        "partition",
        "TPR",
        "FPR",
        "least new, honest",
        "least explained, honest",
        "mean α, honest",
        "paper's TPR",
        "paper's FPR",
    ]
    rows = []
    for name, runs in with_guard.items():
        without = without_guard.get(name, [])
        honest = [record for run in runs for record in run.records(of_freeloaders=False)]
        honest_alpha = known_scores(alpha, (record for run in without for record in run.records(of_freeloaders=False)))
        rows.append(
            [
                f"`{name}`",
                percent(run.rates.true_positive for run in runs if run.freeloaders),
                percent(run.rates.false_positive for run in runs),
                f"{min(known_scores(new_part, honest)):.1e}",
                f"{min(known_scores(explained_part, honest)):.3f}",
                format_mean(fmean(honest_alpha) if honest_alpha else None, digits=2),
                percent(run.paper_rates.true_positive for run in without if run.freeloaders),
                percent(run.paper_rates.false_positive for run in without),
            ]
        )
    return markdown_table(headers, rows)


def score_table(guarded: Sequence[Run], unguarded: Sequence[Run]) -> str:
    """Return a table of how well each score alone separates forged from honest uploads, with one row per behaviour."""
    without_guard = group(unguarded, lambda run: run.behaviour_name)
    rows = [
        [
            f"`{name}`",
            area(without_guard.get(name, []), alpha),
            area(runs, new_part, low_is_suspicious=True),
            area(runs, explained_part, low_is_suspicious=True),
        ]
        for name, runs in by_behaviour(guarded)
        if name != "none"
    ]
    return markdown_table(["behaviour", "α", "new", "explained"], rows)


def area(runs: Sequence[Run], score: Score, *, low_is_suspicious: bool = False) -> str:
    """Return the area under a score's ROC curve, over forged and honest uploads from the second round on.

    Uploads of freeloaders in rounds in which they train are ignored.
    """
    forged: list[float] = []
    honest: list[float] = []
    for run in runs:
        for record in run.history.clients:
            value, misbehaves = score(record), run.misbehaves(record)
            trains_as_freeloader = record.client in run.freeloaders and not misbehaves
            if value is not None and record.round > 1 and not trains_as_freeloader:
                (forged if misbehaves else honest).append(-value if low_is_suspicious else value)
    return f"{auroc(forged, honest):.3f}" if forged else MISSING


def count_table(runs: Sequence[Run]) -> str:
    """Return a table with one row per number of freeloaders."""
    headers = ["freeloaders", "runs", "TPR", "FPR", "honest uploads dropped", "rounds to detection"]
    rows = [
        [
            count,
            len(own),
            percent(run.rates.true_positive for run in own),
            percent(run.rates.false_positive for run in own),
            sum(run.dropped_honest_uploads for run in own),
            mean_rounds_to_detection(own),
        ]
        for count, own in sorted(group(runs, lambda run: len(run.freeloaders)).items())
    ]
    return markdown_table(headers, rows)


def full_setting_table(runs: Sequence[Run]) -> str:
    """Return a table with one row per partition, number of freeloaders and detector."""
    headers = [
        "partition",
        "freeloaders",
        "detector",
        "TPR",
        "FPR",
        "accuracy",
        "freeloaders' weight",
        "stopped",
    ]
    groups = group(runs, lambda run: (run.partition_name, len(run.freeloaders), str(run.config["detector"])))
    rows = [
        [
            f"`{name}`",
            count,
            detector,
            percent(run.rates.true_positive for run in own) if count else MISSING,
            percent(run.rates.false_positive for run in own),
            accuracy(own),
            weight(own) if count else MISSING,
            sum(run.summary["stopped"] is not None for run in own) or "",
        ]
        for (name, count, detector), own in sorted(groups.items())
    ]
    return markdown_table(headers, rows)


def group(runs: Iterable[Run], key: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """Group runs by a key, in the order in which keys appear."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def by_behaviour(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Group runs by behaviour: first those without freeloaders, then freeloaders, then attackers."""
    groups = group(runs, lambda run: run.behaviour_name)
    return sorted(groups.items(), key=lambda item: (item[0] != "none", item[1][0].has_attackers, item[0]))


def percent(fractions: Iterable[float]) -> str:
    """Return the mean of some fractions in percent, or a dash if there are none."""
    values = list(fractions)
    return format_count(100 * fmean(values)) if values else MISSING


def accuracy(runs: Sequence[Run]) -> str:
    return percent(run.summary["final_accuracy"] for run in runs)


def weight(runs: Sequence[Run]) -> str:
    return percent(run.freeloader_weight for run in runs)


def mean_rounds_to_detection(runs: Sequence[Run]) -> str:
    rounds = [number for run in runs for number in run.rounds_to_detection]
    return format_mean(fmean(rounds) if rounds else None)


def draw_scores(guarded: Sequence[Run], unguarded: Sequence[Run], path: Path) -> None:
    """Draw α in runs without a detector and the guard's two scores, for honest clients and for freeloaders."""
    partitions = list(group(guarded, lambda run: run.partition_name))
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for place, name in enumerate(partitions):
        replayed = [run for run in unguarded if run.partition_name == name and run.behaviour_name == "replay"]
        judged = [run for run in guarded if run.partition_name == name and not run.has_attackers]
        for of_freeloaders, colour, shift in ((False, BLUE, -0.18), (True, ORANGE, 0.18)):
            records = (record for run in replayed for record in run.records(of_freeloaders=of_freeloaders))
            draw_box(left, known_scores(alpha, after_first_round(records)), place + shift, colour)
            for axes, score, behaviours in ((middle, new_part, COPIES), (right, explained_part, NOISE)):
                records = (
                    record
                    for run in judged
                    if not of_freeloaders or run.behaviour_name.partition(":")[0] in behaviours
                    for record in run.records(of_freeloaders=of_freeloaders)
                    if run.misbehaves(record) == of_freeloaders
                )
                values = [max(value, 1e-16) for value in known_scores(score, after_first_round(records))]
                draw_box(axes, values, place + shift, colour)
    for axes, title in (
        (left, "α (freeloaders: replay)"),
        (middle, "new part (freeloaders: copies)"),
        (right, "explained part (freeloaders: noise)"),
    ):
        axes.set_title(title)
        axes.set_xticks(range(len(partitions)), partitions, rotation=30)
    for axes, threshold in ((left, KAPPA), (middle, 1e-8)):
        axes.axhline(threshold, color="black", linewidth=0.8, linestyle="--")
    for axes in (middle, right):
        axes.set_yscale("log")
    clients = (("honest", BLUE), ("freeloaders", ORANGE))
    handles = [left.plot([], [], color=colour, label=label)[0] for label, colour in clients]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def after_first_round(records: Iterable[ClientRecord]) -> Iterator[ClientRecord]:
    return (record for record in records if record.round > 1)


def draw_box(axes: Any, values: list[float], place: float, colour: str) -> None:
    """Draw a box around the middle half of the values, with whiskers to the smallest and the largest."""
    if values:
        parts = ("boxprops", "whiskerprops", "capprops", "medianprops")
        axes.boxplot(
            [values],
            positions=[place],
            widths=0.3,
            whis=(0, 100),
            manage_ticks=False,
            **{part: {"color": colour} for part in parts},
        )


if __name__ == "__main__":
    main()
