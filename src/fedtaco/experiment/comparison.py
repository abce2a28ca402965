"""Several methods on the same data, seeds and batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput
from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.experiment.config import check_distinct, check_parameters, relevant_parameters, resolve_config
from fedtaco.methods import METHODS
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.settings import ExperimentConfig, RunOptions


def plan_comparison(methods: Sequence[str], seeds: Sequence[int], **settings: Any) -> list[ExperimentConfig]:
    """Return one configuration per method and seed; each gets the parameters that belong to its method."""
    if not methods:
        raise InvalidInput("methods is empty; name at least one, as fedavg,taco.")
    check_distinct(methods)
    parameters, detector = settings.pop("parameters", {}), settings.get("detector") or "off"
    check_parameters(parameters, methods, detector)
    return [
        resolve_config(
            method=method, seed=seed, parameters=relevant_parameters(parameters, method, detector), **settings
        )
        for seed in seeds
        for method in methods
    ]


def run_comparison(
    configs: Sequence[ExperimentConfig], out: Path, options: RunOptions, callback: Callback
) -> list[dict[str, Any]]:
    """Run all configurations, each in a folder of its own below ``out``, and return their summaries."""
    require_folder_for_runs(out)
    runs = [(one, out / f"{METHODS.find(one['method']).name}-seed{one['seed']}") for one in configs]
    return run_all(runs, options, callback)
