#!/usr/bin/env python3
"""Run the experiments of docs/freeloaders.md, which take hours on two cores.

The script may be stopped at any time; the same command continues where it stopped.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedtaco.experiment import Callback, RunOptions, build_spec
from fedtaco.experiment.concurrent import run_all

Settings = dict[str, Any]

SEEDS = range(3)
PARTITIONS = ("groups", "dirichlet:0.1", "dirichlet:0.5", "dirichlet:100", "iid")
FULL_SETTING_PARTITIONS = ("groups", "dirichlet:0.5")
SCALED = tuple(f"replay-scaled:{factor}" for factor in (-1, 0.1, 0.3, 3))
SOMETIMES_HONEST = tuple(f"{name}:{when}" for name in ("replay", "replay-noise") for when in ("late", "intermittent"))
FREELOADERS = ("replay", *SCALED, "replay-noise", "zero", "disguised", "random", *SOMETIMES_HONEST)
ATTACKERS = ("sign-flip", "label-flip", "gaussian")
IMAGE_FREELOADERS = ("replay", "replay-noise", "zero", "disguised", "random", "replay:late")
SMALL_ADULT = {"dataset": "adult", "rounds": 30, "local_steps": 50}
SMALL_FMNIST = {"dataset": "fmnist", "rounds": 30, "local_steps": 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the run folders")
    folder = parser.parse_args().folder
    os.nice(10)
    for name, planned in campaigns():
        print(f"{name}: {len(planned)} runs", flush=True)
        runs = [(build_spec(**settings), folder / name / folder_name(settings)) for settings in planned]
        run_all(runs, RunOptions(resume=True), Callback())


def campaigns() -> Iterator[tuple[str, list[Settings]]]:
    """Yield the name and the runs of each campaign."""
    behaviours = (*FREELOADERS, *ATTACKERS)
    for detector in ("guard", "off"):
        yield f"adult-{detector}", list(plan(SMALL_ADULT, PARTITIONS, (0, 8), behaviours, detector))
    yield (
        "adult-full",
        [
            settings
            for detector in ("guard", "paper", "off")
            for settings in plan({"dataset": "adult"}, FULL_SETTING_PARTITIONS, (0, 8), ("replay",), detector)
        ],
    )
    yield "adult-few", list(plan(SMALL_ADULT, PARTITIONS, (4, 1), FREELOADERS, "guard"))
    for detector in ("guard", "off"):
        yield f"fmnist-{detector}", list(plan(SMALL_FMNIST, ("groups", "iid"), (0, 8), IMAGE_FREELOADERS, detector))


def plan(
    shared: Settings, partitions: Sequence[str], counts: Sequence[int], behaviours: Sequence[str], detector: str
) -> Iterator[Settings]:
    """Yield the settings of one run per seed, number of freeloaders, partition and behaviour.

    Parameters
    ----------
    shared
        Settings of all runs.
    partitions, behaviours
        The partitions, and the behaviours of the freeloaders or attackers.
    counts
        The numbers of freeloaders; without any, there is one run for all behaviours.
    detector
        The detector of all runs.
    """
    for seed in SEEDS:
        for count in counts:
            for partition in partitions:
                own = {**shared, "method": "taco", "detector": detector, "seed": seed, "partition": partition}
                if count == 0:
                    yield own
                else:
                    yield from ({**own, "freeloaders": count, "behaviour": behaviour} for behaviour in behaviours)


def folder_name(settings: Settings) -> str:
    """Return a name that distinguishes the runs of a campaign."""
    names = [settings["detector"], settings["partition"], settings.get("behaviour", "none")]
    return "-".join(map(str, [*names, settings.get("freeloaders", 0), settings["seed"]])).replace(":", "_")


if __name__ == "__main__":
    main()
