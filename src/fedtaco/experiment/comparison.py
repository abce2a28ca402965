"""Compare several methods on the same data, seeds and batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.experiment.config import check_parameters, choose_methods, relevant_parameters, resolve_config
from fedtaco.methods import METHODS
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.settings import ExperimentConfig, RunOptions


def plan_comparison(methods: Sequence[str], seeds: Sequence[int], **settings: Any) -> list[ExperimentConfig]:
    """Return one configuration per method and seed.

    Parameters
    ----------
    methods
        Names of the methods; none may be repeated. ``["all"]`` stands for every registered method.
    seeds
        Seeds with which each method is run.
    **settings
        Further settings of :class:`ExperimentConfig`. Each configuration receives those of ``parameters``
        that belong to its method or to the detector.

    Raises
    ------
    InvalidInput
        If ``methods`` is empty, a method is repeated, or a setting is not valid.
    """
    methods = choose_methods(methods)
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
    """Run all configurations, each in its own subfolder of ``out``, and return their summaries."""
    require_folder_for_runs(out)
    runs = [(one, out / f"{METHODS.find(one['method']).name}-seed{one['seed']}") for one in configs]
    return run_all(runs, options, callback)
