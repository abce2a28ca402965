#!/usr/bin/env python3
"""Run the seven methods and other readings of TACO at the paper's setting, on Fashion-MNIST with inputs in [0, 1].

A run takes some fifteen minutes on one core; names after the folder choose some of them. The same command continues
where it stopped. The figures are kept in readings.json, beside this script, of which the table in docs/results.md is
made; without a folder, only the table is written.
"""

import argparse
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from pages import DOCS, finished_runs, markdown_table, write_sections
from torch import Tensor

import fedtaco
from fedtaco.methods import FoolsGold, Method, ServerState, Taco, Uploads, geometry_of
from fedtaco.methods.base import NamedTensors
from fedtaco.methods.constants import Constants
from fedtaco.records import RunFolder

TARGET = 0.7
PAPER = {
    "fedavg": (71.4, "85"),
    "fedprox": (67.1, "100+"),
    "foolsgold": (73.1, "80"),
    "scaffold": (68.8, "100+"),
    "stem": (73.0, "69"),
    "fedacg": (70.9, "92"),
    "taco": (73.3, "59"),
}
"""The paper's final accuracy in percent, and its rounds to 70 %."""
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


@dataclass(frozen=True)
class TacoAccumulated(TacoOfOtherVectors):
    """TACO whose α is that of all uploads of a client so far, added up."""

    name = "taco-accumulated"
    summary = "TACO with α from accumulated uploads"

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {**super().server_memory(weights, constants), "sums": weights.new_zeros(constants.clients, len(weights))}

    def own_alpha(self, server: ServerState, uploads: Uploads) -> Tensor:
        return geometry_of(server.memory["sums"][uploads.clients] + uploads.vectors["update"]).alpha

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        sums = server.memory["sums"].index_add(0, uploads.clients, uploads.vectors["update"])
        return super().aggregate(server, uploads).with_memory(sums=sums)


@dataclass(frozen=True)
class TacoUncorrected(TacoOfOtherVectors):
    """TACO whose α is that of the uploads without what their clients were told to add."""

    name = "taco-uncorrected"
    summary = "TACO with α from uploads without their correction"

    def own_alpha(self, server: ServerState, uploads: Uploads) -> Tensor:
        used = server.memory["alpha"][uploads.clients].to(server.weights.dtype)
        moved = uploads.constants.local_steps * uploads.constants.local_lr * server.memory["direction"]
        return geometry_of(uploads.vectors["update"] - (1 - used)[:, None] * moved).alpha


@dataclass(frozen=True)
class FoolsGoldAccumulated(FoolsGold):
    """The paper's FoolsGold with cosines of all uploads of a client so far, added up."""

    name = "foolsgold-accumulated"
    summary = "FoolsGold with cosines of accumulated uploads"

    def server_memory(self, weights: Tensor, constants: Constants) -> NamedTensors:
        return {"sums": weights.new_zeros(constants.clients, len(weights))}

    def weigh(self, server: ServerState, uploads: Uploads) -> Tensor:
        sums = server.memory["sums"][uploads.clients] + uploads.vectors["update"]
        return uploads.weights_proportional_to(geometry_of(sums).cosines.clamp(min=0))

    def aggregate(self, server: ServerState, uploads: Uploads) -> ServerState:
        sums = server.memory["sums"].index_add(0, uploads.clients, uploads.vectors["update"])
        return super().aggregate(server, uploads).with_memory(sums=sums)


@dataclass(frozen=True)
class Reading:
    """A method, with settings other than the paper's where they are part of the reading."""

    text: str
    method: str | Method
    settings: Mapping[str, Any] = field(default_factory=dict)


READINGS = {
    **{name: Reading(name, name) for name in PAPER},
    "taco-accumulated": Reading("taco, α from accumulated updates", TacoAccumulated()),
    "taco-uncorrected": Reading("taco, α from uploads without their correction", TacoUncorrected()),
    "taco-samples": Reading("taco, weighting by samples", "taco", {"weighting": "samples"}),
    "taco-expulsion": Reading("taco, the paper's detector on", "taco", {"detector": "paper"}),
    "taco-gamma2": Reading("taco, γ = 2/K", Taco(gamma=0.02)),
    "foolsgold-accumulated": Reading("foolsgold, cosines of accumulated updates", FoolsGoldAccumulated()),
    "taco-steady": Reading("taco-steady", "taco-steady"),
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
            run(name, arguments.folder / name)
        write_results(arguments.folder)
    runs = json.loads(RESULTS.read_text(encoding="utf-8"))
    write_sections(DOCS / "results.md", {"readings": table(runs)})


def run(name: str, folder: Path) -> None:
    """Run one reading at the paper's setting, with seed 0; a run that has ended is not repeated."""
    print(name, flush=True)
    reading = READINGS[name]
    try:
        fedtaco.run(reading.method, dataset="fmnist:unit", engine="serial", out=folder, resume=True, **reading.settings)
    except fedtaco.RunStopped as stop:
        print(stop, flush=True)


def write_results(folder: Path) -> None:
    """Keep the accuracies of all finished runs."""
    found = {name: finished_runs(folder / name) for name in READINGS}
    runs = {name: figures(own[0]) for name, own in found.items() if own}
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


def figures(run_folder: RunFolder) -> dict[str, Any]:
    """Return what the table needs of a run."""
    summary = run_folder.summary() or {}
    records = run_folder.rounds()
    return {
        "accuracy": [round(record.accuracy, 4) for record in records if record.accuracy is not None],
        "expelled": len(summary.get("expelled") or []),
    }


def table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Return accuracies and rounds to 70 %, beside the paper's."""
    headers = ["reading", "rounds to 70%", "paper", "final accuracy, %", "paper", "last ten rounds, mean (range)"]
    return markdown_table(headers, (row(name, **runs[name]) for name in READINGS if name in runs))


def row(name: str, accuracy: Sequence[float], expelled: int) -> list[str]:
    final, rounds = PAPER.get(name, (None, "–"))
    reached = next((str(number) for number, value in enumerate(accuracy, 1) if value >= TARGET), "100+")
    last = [100 * value for value in accuracy[-10:]]
    return [
        READINGS[name].text + (f" ({expelled} clients expelled)" if expelled else ""),
        reached,
        rounds,
        f"{last[-1]:.1f}",
        "–" if final is None else f"{final:.1f}",
        f"{fmean(last):.1f} ({min(last):.1f}–{max(last):.1f})",
    ]


if __name__ == "__main__":
    main()
