#!/usr/bin/env python3
"""Run the experiments of docs/stability.md, which take about an hour on two cores, one run at a time.

The script may be stopped at any time; the same command continues where it stopped. The thresholds of the stability
monitor were chosen on the seeds 0 to 4; the table of the page is about other seeds.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedtaco.experiment import Callback, RunOptions, build_spec
from fedtaco.experiment.runner import run_experiment
from fedtaco.records import RunFolder

SEEDS = range(10, 15)
ADULT = {"dataset": "adult", "rounds": 50, "local_steps": 100}
FMNIST = {"dataset": "fmnist", "model": "mlp:64-32", "rounds": 100, "local_steps": 30, "local_lr": 0.03}
SETTINGS: dict[str, dict[str, Any]] = {
    "adult-dirichlet-0.5": {**ADULT, "partition": "dirichlet:0.5"},
    "adult-dirichlet-0.2": {**ADULT, "partition": "dirichlet:0.2"},
    "fmnist-groups": {**FMNIST, "partition": "groups"},
    "adult-iid": {**ADULT, "partition": "iid"},
    "fmnist-iid": {**FMNIST, "partition": "iid"},
}
WEIGHTING, UNIFORM = ("taco", "foolsgold"), ("fedavg", "fedacg", "taco-correction")
"""Methods that weigh uploads by their agreement with the mean, and methods with uniform weights."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the run folders")
    folder = parser.parse_args().folder
    os.nice(10)
    for name, settings in plan():
        path = folder / name / f"{settings['method']}-{settings['seed']}"
        print(path, flush=True)
        run_experiment(build_spec(**settings), RunFolder(path), RunOptions(resume=True, workers=1), Callback())


def plan() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the settings of each run with the name of its campaign; on IID data, only methods that weigh uploads."""
    for method in (*WEIGHTING, *UNIFORM):
        for name, settings in SETTINGS.items():
            if method in WEIGHTING or not name.endswith("iid"):
                for seed in SEEDS:
                    yield name, {**settings, "method": method, "seed": seed, "average_last": 10}


if __name__ == "__main__":
    main()
