"""Several methods on the same data, seeds and batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.experiment.build import check_overrides, method_class, refuse_repeats, relevant
from fedtaco.experiment.config import Experiment
from fedtaco.experiment.many import folder_taken, run_all
from fedtaco.experiment.runs import Manner
from fedtaco.experiment.watching import Watcher


def plan_comparison(methods: Sequence[str], seeds: Sequence[int], **settings: Any) -> list[Experiment]:
    """One experiment per method and seed; each takes those of the parameters that are its own."""
    if not methods:
        raise InvalidInput("methods is empty; name at least one, as fedavg,taco.")
    refuse_repeats(methods)
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
    """Run all, each in a folder of its own below ``out``, and return their summaries."""
    folder_taken(out)
    runs = [(one, out / f"{method_class(one.method).name}-seed{one.seed}") for one in experiments]
    return run_all(runs, manner, watcher)
