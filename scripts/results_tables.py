#!/usr/bin/env python3
"""Write the tables and figures of docs/results.md from the runs of scripts/run-results.

Each folder of runs has a section of the page, between two markers with the name of the folder, which is replaced. A
figure is drawn if the page shows an image of that name. Folders with unfinished runs are skipped. Client time is the
number of rounds times the cost of a client's step, which is read from benchmarks/results.json.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Any, Self

from pages import DOCS, finished_runs, markdown_table, subfolders, write_sections

from fedtaco.records import RunFolder
from fedtaco.records.formatting import format_mean, format_target
from fedtaco.records.method_summary import MethodSummary, shows_traffic, summarize_methods
from fedtaco.report import paired_differences
from fedtaco.reproduce.figures import draw_figure
from fedtaco.reproduce.results import CellResult, Reproduction

PAGE = DOCS / "results.md"
BENCHMARK = DOCS.parent / "benchmarks" / "results.json"
SETTINGS = ("dataset", "model", "partition", "clients", "rounds", "local_steps", "local_lr", "batch_size", "fedtaco")
"""Settings that are stated above each table."""
TIMED = ("adult", "adult:standardized", "fmnist", "mnist", "femnist:digits")
"""Datasets to which the step costs apply that the benchmark measured for their models."""
LAST_ROUNDS = 10
"""Number of rounds at the end of a run over which the lowest and highest accuracy are stated."""
MISSING = "–"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tables and figures of docs/results.md.")
    parser.add_argument("folder", type=Path, help="the folder that scripts/run-results wrote")
    folder = parser.parse_args().folder
    step_costs, page = read_step_costs(), PAGE.read_text(encoding="utf-8")
    sections = {}
    for path in subfolders(folder):
        comparison = Comparison.read(path)
        if comparison.runs:
            control = Comparison.read(path.with_name(path.name.removesuffix("-threefold-rate")))
            sections[path.name] = f"{comparison.settings}\n\n{build_table(comparison, control, step_costs)}"
            image = f"images/results-{path.name}.svg"
            if image in page:
                draw_curves(comparison, DOCS / image)
    write_sections(PAGE, sections)


@dataclass(frozen=True)
class Comparison:
    """The runs of one folder, those of FedAvg first."""

    runs: list[RunFolder]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the runs of a folder; the comparison is empty if one of them is unfinished."""
        runs = finished_runs(folder)
        return cls(sorted(runs, key=lambda run: (variant(run) != "fedavg", variant(run), run.config()["seed"])))

    @cached_property
    def config(self) -> dict[str, Any]:
        return self.runs[0].config()

    @cached_property
    def summaries(self) -> list[dict[str, Any]]:
        return [{**(run.summary() or {}), "method": variant(run)} for run in self.runs]

    @cached_property
    def methods(self) -> list[MethodSummary]:
        return summarize_methods(self.summaries)

    @cached_property
    def curves(self) -> dict[str, list[list[float | None]]]:
        """Accuracy after each round, for each seed of each variant."""
        curves: dict[str, list[list[float | None]]] = {}
        for run in self.runs:
            curves.setdefault(variant(run), []).append(run.history().column("accuracy"))
        return curves

    @property
    def settings(self) -> str:
        """The sentence about the settings that the page shows above a table, wrapped."""
        stated = ", ".join(f"{name.replace('_', ' ')} {self.config[name]}" for name in SETTINGS)
        return "\n".join(wrap(f"Settings: {stated}.", 120))

    def times_to_target(self, step_costs: Mapping[str, float]) -> dict[str, float]:
        """Return rounds to the target times the cost of a step, for methods that reach it with every seed."""
        reached = [row for row in self.methods if row.reached_target and row.method in step_costs]
        return {row.method: float(row.rounds_mark) * step_costs[row.method] for row in reached}

    def last_accuracies(self, method: str) -> str:
        """Return the lowest and the highest accuracy in the last rounds of all seeds, in percent."""
        if self.config["rounds"] <= LAST_ROUNDS:
            return MISSING
        last = [100 * value for curve in self.curves[method] for value in curve[-LAST_ROUNDS:] if value is not None]
        return f"{min(last):.1f} to {max(last):.1f}"


def variant(run: RunFolder) -> str:
    """Return the name of a run's method, with γ if that was set."""
    config = run.config()
    method, gamma = str(config["method"]), config["parameters"].get("taco.gamma")
    return method if gamma is None else f"{method}, γ = {gamma:g}"


def read_step_costs() -> dict[str, dict[str, float]]:
    """Return the measured cost of a client's step relative to FedAvg's, by model and method."""
    measured = json.loads(BENCHMARK.read_text(encoding="utf-8"))["methods"]
    return {
        model: {"fedavg": 1.0, **{method: ratio["median"] for method, ratio in times["times_fedavg"].items()}}
        for model, times in measured.items()
    }


def build_table(
    comparison: Comparison, control: Comparison, step_costs_by_model: Mapping[str, Mapping[str, float]]
) -> str:
    """Return a Markdown table with one row per method; columns without any value are left out.

    Parameters
    ----------
    comparison
        The runs of the table.
    control
        The runs with the FedAvg to whose client time all others are relative; the same runs unless ``comparison`` has
        another learning rate.
    step_costs_by_model
        Costs of a client's step relative to FedAvg's, by model and method.
    """
    config, reference = comparison.config, comparison.methods[0].method
    step_costs = step_costs_by_model.get(config["model"], {}) if config["dataset"] in TIMED else {}
    times = comparison.times_to_target(step_costs)
    fedavg_time = control.times_to_target(step_costs).get("fedavg")
    differences = paired_differences(comparison.summaries, reference)
    target, has_bytes = format_target(config["target"]), shows_traffic(comparison.methods)
    headers = [
        "method",
        "seeds",
        f"client time to {target}, × fedavg's",
        f"rounds to {target}",
        "final accuracy, %",
        f"last {LAST_ROUNDS} rounds",
        f"difference to {reference}",
        "worst tenth, %",
        "MB sent",
        "MB received",
    ]
    rows = [
        [
            row.method,
            str(row.seeds),
            f"{times[row.method] / fedavg_time:.2f}" if fedavg_time and row.method in times else MISSING,
            row.paper_mark,
            format_mean(row.accuracy, row.accuracy_deviation, scale=100),
            comparison.last_accuracies(row.method),
            str(differences.get(row.method, MISSING)),
            format_mean(row.worst_tenth_accuracy, scale=100),
            format_mean(row.bytes_up, scale=1e-6, digits=0) if has_bytes else MISSING,
            format_mean(row.bytes_down, scale=1e-6, digits=0) if has_bytes else MISSING,
        ]
        for row in comparison.methods
    ]
    shown = [place for place in range(len(headers)) if any(row[place] != MISSING for row in rows)]
    return markdown_table([headers[place] for place in shown], [[row[place] for place in shown] for row in rows])


def draw_curves(comparison: Comparison, path: Path) -> None:
    """Draw accuracy over rounds as an SVG file."""
    cells = [
        CellResult(
            panel=comparison.config["dataset"],
            variant=name,
            local_steps=comparison.config["local_steps"],
            summaries=(),
            curves=curves,
            round_seconds=(),
            paper=None,
        )
        for name, curves in comparison.curves.items()
    ]
    _, png = draw_figure(Reproduction(path.stem, "", "curves", cells, reductions=(), seeds=1), path)
    png.unlink()


if __name__ == "__main__":
    main()
