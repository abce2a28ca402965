#!/usr/bin/env python3
"""Run the seven methods and other readings of TACO on Fashion-MNIST with inputs in [0, 1], and on adult.

A run on Fashion-MNIST takes some twenty minutes on one core; names after the folder choose some of the readings. The
same command continues where it stopped. The figures are kept in readings.json, beside this script, and the tables in
docs/results.md are made from that file; without a folder, only the tables are written.
"""

import argparse
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from pages import DOCS, markdown_table, write_sections
from torch import Tensor

import fedtaco
from fedtaco.benchmark.record import DIGITS, first_round_at
from fedtaco.methods import PAPER_METHODS, FoolsGold, Method, ServerState, Taco, Uploads
from fedtaco.methods.base import NamedTensors
from fedtaco.methods.constants import Constants
from fedtaco.records import RunFolder
from fedtaco.records.swings import WINDOW, accuracy_range, alternates, range_swings
from fedtaco.uploads import geometry_of

RESULTS = Path(__file__).with_suffix(".json")


class TacoOfOtherVectors(Taco, ABC):
    """TACO whose α is that of other vectors than the uploads."""

    @abstractmethod
    def own_alpha(self, server: ServerState, uploads: Uploads) -> Tensor:
        """Return the α of the clients whose uploads these are."""

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return uploads.weights_proportional_to(self.own_alpha(server, uploads))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        alpha = server.memory["alpha"].clone()
        alpha[uploads.clients] = self.own_alpha(server, uploads)
        return super().aggregate(server, uploads).with_memory(alpha=alpha)


def accumulated(server: ServerState, uploads: Uploads) -> Tensor:
    """Return the sum of all uploads so far of each client of the round."""
    earlier = server.memory["sums"]
    return torch.cat([earlier[uploads.clients[rows]] + block for rows, block in uploads.vectors.blocks()])


@dataclass(frozen=True)
class TacoAccumulated(TacoOfOtherVectors):
    """TACO whose α is that of all uploads of a client so far, added up."""

    name = "taco-accumulated"
    summary = "TACO with α from accumulated uploads"

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), "sums": weights.new_zeros(constants.clients, len(weights))}

    def own_alpha(self, server: ServerState, uploads: Uploads) -> Tensor:
        return geometry_of(accumulated(server, uploads)).alpha

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        sums = server.memory["sums"].index_copy(0, uploads.clients, accumulated(server, uploads))
        return super().aggregate(server, uploads).with_memory(sums=sums)


@dataclass(frozen=True)
class TacoUncorrected(TacoOfOtherVectors):
    """TACO whose α is that of the uploads without what their clients were told to add."""

    name = "taco-uncorrected"
    summary = "TACO with α from uploads without their correction"

    def own_alpha(self, server: ServerState, uploads: Uploads) -> Tensor:
        used = server.memory["alpha"][uploads.clients].to(server.weights.dtype)
        moved = uploads.constants.local_steps * uploads.constants.local_lr * server.memory["direction"]
        own = [block - (1 - used[rows])[:, None] * moved for rows, block in uploads.vectors.blocks()]
        return geometry_of(torch.cat(own)).alpha


@dataclass(frozen=True)
class FoolsGoldAccumulated(FoolsGold):
    """The paper's FoolsGold with cosines of all uploads of a client so far, added up."""

    name = "foolsgold-accumulated"
    summary = "FoolsGold with cosines of accumulated uploads"

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"sums": weights.new_zeros(constants.clients, len(weights))}

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        return uploads.weights_proportional_to(geometry_of(accumulated(server, uploads)).cosines.clamp(min=0))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        sums = server.memory["sums"].index_copy(0, uploads.clients, accumulated(server, uploads))
        return super().aggregate(server, uploads).with_memory(sums=sums)


@dataclass(frozen=True)
class Reading:
    """A method, with settings other than the paper's where they are part of the reading."""

    text: str
    method: str | Method
    settings: Mapping[str, Any] = field(default_factory=dict)


READINGS = {
    **{method.name: Reading(method.name, method.name) for method in PAPER_METHODS},
    "taco-accumulated": Reading("taco, α from accumulated updates", TacoAccumulated()),
    "taco-accumulated-literal": Reading(
        "taco, α from accumulated updates, Eq. 8 at its literal scale", TacoAccumulated(delta_scale="literal")
    ),
    "taco-uncorrected": Reading("taco, α from uploads without their correction", TacoUncorrected()),
    "taco-samples": Reading("taco, weighting by samples", "taco", {"weighting": "samples"}),
    "taco-expulsion": Reading("taco, the paper's detector on", "taco", {"detector": "paper"}),
    "taco-gamma2": Reading("taco, γ = 2/K", Taco(gamma=0.02)),
    "foolsgold-accumulated": Reading("foolsgold, cosines of accumulated updates", FoolsGoldAccumulated()),
    "taco-steady": Reading("taco-steady", "taco-steady"),
}


@dataclass(frozen=True)
class Task:
    """Settings at which all readings are run."""

    settings: Mapping[str, Any]
    rounds: int
    target: float
    seeds: int
    paper: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The paper's rounds to the target and its final accuracy in percent, by method."""

    def folder(self, root: Path, name: str, seed: int) -> Path:
        return root / re.sub(r"\W+", "-", self.settings["dataset"]) / f"{name}-seed{seed}"


TASKS = {
    "fmnist": Task(
        settings={"dataset": "fmnist:unit", "engine": "serial"},
        rounds=100,
        target=0.7,
        seeds=1,
        paper={
            "fedavg": ("85", "71.4"),
            "fedprox": ("100+", "67.1"),
            "foolsgold": ("80", "73.1"),
            "scaffold": ("100+", "68.8"),
            "stem": ("69", "73.0"),
            "fedacg": ("92", "70.9"),
            "taco": ("59", "73.3"),
        },
    ),
    "adult": Task(
        settings={"dataset": "adult", "partition": "dirichlet:0.1", "engine": "batched", "workers": 1},
        rounds=50,
        target=0.78,
        seeds=5,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where to write the run folders")
    parser.add_argument("names", nargs="*", help=f"what to run, by default all: {', '.join(READINGS)}")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        os.nice(10)
        torch.set_num_threads(1)
        for name in arguments.names or READINGS:
            for task in TASKS.values():
                run_all_seeds(name, task, arguments.folder)
        write_results(arguments.folder)
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))
    write_sections(DOCS / "results.md", {f"readings-{name}": table(runs[name], TASKS[name]) for name in TASKS})


def run_all_seeds(name: str, task: Task, folder: Path) -> None:
    """Run one reading on a task; runs that have ended are not repeated."""
    reading = READINGS[name]
    for seed in range(task.seeds):
        out = task.folder(folder, name, seed)
        print(out, flush=True)
        settings = {**task.settings, **reading.settings, "rounds": task.rounds, "seed": seed}
        try:
            fedtaco.run(reading.method, out=out, resume=True, **settings)
        except fedtaco.RunStopped as stop:
            print(stop, flush=True)


def write_results(folder: Path) -> None:
    """Keep the accuracies of the readings of which all seeds have finished, beside those kept earlier."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    for title, task in TASKS.items():
        found = {name: [RunFolder(task.folder(folder, name, seed)) for seed in range(task.seeds)] for name in READINGS}
        finished = {name: own for name, own in found.items() if all(one.exists() and one.summary() for one in own)}
        runs[title] |= {name: [figures(one) for one in own] for name, own in finished.items()}
    RESULTS.write_text(json.dumps(runs) + "\n", encoding="utf-8")


def figures(run_folder: RunFolder) -> dict[str, Any]:
    """Return what the tables need of a run."""
    summary = run_folder.summary() or {}
    records = run_folder.rounds()
    last_rounds = (row for row in run_folder.client_rows() if row["round"] > len(records) - WINDOW)
    weights = [row["weight"] or 0.0 for row in last_rounds]
    return {
        "accuracy": [round(record.accuracy, DIGITS) for record in records if record.accuracy is not None],
        "expelled": len(summary.get("expelled") or []),
        "weights": [round(min(weights), 4), round(max(weights), 4)],
    }


def table(runs: Mapping[str, Sequence[Mapping[str, Any]]], task: Task) -> str:
    """Return accuracies and rounds to the target, beside the paper's where it has them."""
    target = f"rounds to {100 * task.target:g}%"
    headers = ["reading", target, "final accuracy, %", "last ten rounds, mean (range)", "seeds that swing"]
    headers += ["clients' weights"]
    headers += ["the paper's rounds", "the paper's accuracy, %"] if task.paper else []
    fedavg_ranges = [late_range(run["accuracy"], task) for run in runs["fedavg"]]
    return markdown_table(headers, (row(name, runs[name], task, fedavg_ranges) for name in READINGS if name in runs))


def late_range(curve: Sequence[float], task: Task) -> float | None:
    """Return the range of the last ten accuracies; ``None`` if the run ended early, and so does not swing."""
    return accuracy_range(curve) if len(curve) == task.rounds else None


def row(name: str, runs: Sequence[Mapping[str, Any]], task: Task, fedavg_ranges: Sequence[float | None]) -> list[str]:
    curves = [run["accuracy"] for run in runs]
    expelled = fmean(run["expelled"] for run in runs)
    ended_early = sum(len(curve) < task.rounds for curve in curves)
    remarks = [f"{expelled:g} clients expelled"] if expelled else []
    remarks += [f"{ended_early} of {len(curves)} runs ended early"] if ended_early else []
    partners = fedavg_ranges if name != "fedavg" else [None] * len(curves)
    swinging = [
        range_swings(late_range(curve, task), alternates(curve), partner)
        for curve, partner in zip(curves, partners, strict=True)
    ]
    last = [100 * accuracy for curve in curves for accuracy in curve[-WINDOW:]]
    cells = [
        READINGS[name].text + (f" ({'; '.join(remarks)})" if remarks else ""),
        rounds_to_target(curves, task),
        f"{100 * fmean(curve[-1] for curve in curves):.1f}",
        f"{fmean(last):.1f} ({min(last):.1f} to {max(last):.1f})",
        f"{sum(swinging)} of {len(curves)}",
        f"{min(run['weights'][0] for run in runs):.2f} to {max(run['weights'][1] for run in runs):.2f}",
    ]
    return cells + list(task.paper.get(name, ("–", "–"))) if task.paper else cells


def rounds_to_target(curves: Sequence[Sequence[float]], task: Task) -> str:
    """Return the mean number of rounds, or "100+" if a run of 100 rounds does not reach the target."""
    reached = [first_round_at(task.target, curve) for curve in curves]
    known = [number for number in reached if number is not None]
    return f"{fmean(known):g}" if len(known) == len(curves) else f"{task.rounds}+"


if __name__ == "__main__":
    main()
