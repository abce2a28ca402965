#!/usr/bin/env python3
"""Measure on Fashion-MNIST whether corrections go too far, and write the tables of docs/theory.md.

The runs take some ten minutes on two cores; the same command continues where it stopped. Their figures are kept in
over_correction.json, beside this script.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pages import DOCS, finished_runs, markdown_table, write_sections

import fedtaco
from fedtaco.records import RunFolder
from fedtaco.records.diagnostics import over_corrects

METHODS = ("fedavg", "fedprox", "scaffold", "fedacg", "taco-uniform", "taco")
SEEDS = 2
SETTING: dict[str, Any] = {
    "dataset": "fmnist",
    "model": "mlp:64-32",
    "partition": "groups",
    "clients": 20,
    "rounds": 40,
    "local_steps": 30,
    "local_lr": 0.03,
    "diagnose": True,
}
FIRST_PHASE = 10
"""Last round of the first phase; the first round, in which most methods correct nothing, belongs to none."""
RESULTS = Path(__file__).with_suffix(".json")

Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the run folders")
    folder = parser.parse_args().folder
    fedtaco.compare(METHODS, seeds=SEEDS, out=folder, resume=folder.exists(), **SETTING)
    runs = [figures(run) for run in finished_runs(folder)]
    runs.sort(key=lambda run: (METHODS.index(run["method"]), run["seed"]))
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    write_sections(DOCS / "theory.md", {"over-correction": index_table(runs), "analysis": analysis_table(runs)})


def figures(run: RunFolder) -> Figures:
    """Return what the tables need of one run."""
    config, found, groups = run.config(), run.diagnostics(), run.partition().groups
    assert found is not None
    assert groups is not None
    accuracies = [record.accuracy or 0.0 for record in run.rounds()[-10:]]
    later = found.rounds[1:]
    clients = [one for record in later for one in record.clients]
    return {
        "method": config["method"],
        "seed": config["seed"],
        "accuracy": fmean(accuracies),
        "accuracy_range": max(accuracies) - min(accuracies),
        "clients": shares(one.over_correction for one in clients),
        "groups": {
            group: shares(one.over_correction for one in clients if groups[one.client] == group)
            for group in sorted(set(groups))
        },
        "first_rounds": shares(record.over_correction for record in later if record.round <= FIRST_PHASE),
        "later_rounds": shares(record.over_correction for record in later if record.round > FIRST_PHASE),
        "correction_ratio": known_median(one.correction_ratio for one in clients),
        "momentum": known_median(record.momentum for record in later),
        "lemma_1_residual": known_median(record.lemma_1_residual for record in later),
        "lemma_2_residual": known_median(record.lemma_2_residual for record in later),
        "violating_clients": sum(c <= 0 for _, c in found.assumption_2.values()),
        "violations": fmean((one.gradient_cosine or 0.0) <= 0 for one in clients),
        "smoothness": found.smoothness,
        "gradient_bound": found.gradient_bound,
    }


def shares(indices: Iterable[float | None]) -> dict[str, float | None]:
    """Return the share of undefined indices and, of the others, the shares above 1 or below 0, and the median."""
    everything = list(indices)
    known = [index for index in everything if index is not None]
    return {
        "undefined": 1 - len(known) / len(everything),
        "over_corrected": fmean(map(over_corrects, known)) if known else None,
        "uphill": fmean(index < 0 for index in known) if known else None,
        "median": median(known) if known else None,
    }


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the numbers that are not ``None``; ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


# Tables, in which each cell has one number per seed


def index_table(runs: Sequence[Figures]) -> str:
    """Return the table of over-correction indices."""
    headers = [
        "method",
        "accuracy, last ten rounds (range)",
        "clients over-corrected",
        "uphill",
        "median index",
        "group A",
        "group B",
        "group C",
        f"rounds 2–{FIRST_PHASE}",
        f"rounds {FIRST_PHASE + 1}–{SETTING['rounds']}",
    ]
    return markdown_table(headers, (index_row(own) for own in by_method(runs)))


def index_row(own: Sequence[Figures]) -> list[str]:
    accuracies = [f"{100 * run['accuracy']:.1f} ({100 * run['accuracy_range']:.1f})" for run in own]
    everyone = [run["clients"] for run in own]
    groups = [percentages(run["groups"][group]["over_corrected"] for run in own) for group in ("A", "B", "C")]
    phases = [percentages(run[phase]["over_corrected"] for run in own) for phase in ("first_rounds", "later_rounds")]
    return [
        f"`{own[0]['method']}`",
        "; ".join(accuracies),
        percentages(one["over_corrected"] for one in everyone),
        percentages(one["uphill"] for one in everyone),
        numbers(one["median"] for one in everyone),
        *groups,
        *phases,
    ]


def analysis_table(runs: Sequence[Figures]) -> str:
    """Return the table of the quantities of the paper's analysis."""
    headers = [
        "method",
        "correction / gradients",
        "β",
        "Lemma 1 residual",
        "Lemma 2 residual",
        "clients with some c_i ≤ 0",
        "c_i ≤ 0",
        "L",
        "G",
    ]
    names = ("correction_ratio", "momentum", "lemma_1_residual", "lemma_2_residual")
    rows = (
        [
            f"`{own[0]['method']}`",
            *(numbers(run[name] for run in own) for name in names),
            "; ".join(f"{run['violating_clients']} of {SETTING['clients']}" for run in own),
            percentages(run["violations"] for run in own),
            *(numbers(run[name] for run in own) for name in ("smoothness", "gradient_bound")),
        ]
        for own in by_method(runs)
    )
    return markdown_table(headers, rows)


def by_method(runs: Sequence[Figures]) -> list[list[Figures]]:
    return [[run for run in runs if run["method"] == method] for method in METHODS]


def percentages(values: Iterable[float | None]) -> str:
    return join([None if value is None else f"{100 * value:.0f} %" for value in values])


def numbers(values: Iterable[float | None]) -> str:
    return join([None if value is None else f"{value:.2g}" for value in values])


def join(cells: Sequence[str | None]) -> str:
    known = [cell for cell in cells if cell is not None]
    return "; ".join(known) or "–"


if __name__ == "__main__":
    main()
