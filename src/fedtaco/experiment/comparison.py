"""Several methods on the same data, seeds and batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.experiment.build import check_overrides, method_class, relevant
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.runs import Manner, Watcher, run_experiment
from fedtaco.records import RunFolder


def plan_comparison(methods: Sequence[str], seeds: Sequence[int], **settings: Any) -> list[Experiment]:
    """One experiment per method and seed; each takes those of the parameters that are its own."""
    if not methods:
        raise InvalidInput("methods is empty; name at least one, as fedavg,taco.")
    names = [method_class(method).name for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")
    overrides, detector = settings.pop("parameters", {}), settings.get("detector") or "off"
    check_overrides(overrides, methods, detector)
    return [
        Experiment.of(method=method, seed=seed, parameters=relevant(overrides, method, detector), **settings)
        for seed in seeds
        for method in methods
    ]


def run_comparison(
    experiments: Sequence[Experiment], out: Path, manner: Manner, watcher: Watcher
) -> list[dict[str, Any]]:
    """Run all, each in a folder of its own below ``out``, and return their summaries.

    A run that diverges says so in its summary and does not stop the others; a finished one is not
    run again when resumed.
    """
    if RunFolder(out).exists():
        raise InvalidInput(f"{out} holds a single run; choose another folder (out) for a comparison.")
    folders = [RunFolder(out / f"{method_class(one.method).name}-seed{one.seed}") for one in experiments]
    for experiment, folder in zip(experiments, folders, strict=True):
        folder.claim(experiment.stored(), resume=manner.resume, overwrite=manner.overwrite)
    summaries = []
    for experiment, folder in zip(experiments, folders, strict=True):
        if not (manner.resume and folder.summary()):
            with suppress(RunStopped):
                run_experiment(experiment, folder, manner, watcher)
        summaries.append({"folder": str(folder.path), **(folder.summary() or {})})
    return summaries
