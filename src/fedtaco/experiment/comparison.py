"""Compare several methods on the same data, seeds and batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.experiment.config import (
    MethodGiven,
    check_parameters,
    choose_methods,
    relevant_parameters,
    resolve_config,
    with_names,
)
from fedtaco.experiment.own_task import NOTHING_OWN, OwnTask
from fedtaco.methods import METHODS
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions
from fedtaco.runs.settings import ExperimentConfig


def plan_comparison(
    methods: Sequence[MethodGiven], seeds: Sequence[int], own: OwnTask = NOTHING_OWN, **settings: Any
) -> list[ExperimentConfig]:
    """Return one configuration per method and seed.

    Parameters
    ----------
    methods
        The methods; none may be repeated. ``["all"]`` stands for every registered method.
    seeds
        Seeds with which each method is run.
    own
        The user's own data and model, if there are any.
    **settings
        Further settings of :class:`ExperimentConfig`. Each configuration receives those of ``parameters``
        that belong to its method or to the detector.

    Raises
    ------
    InvalidInput
        If ``methods`` is empty, a method is repeated, or a setting is not valid.
    """
    settings = with_names(settings)
    named = choose_methods(methods)
    parameters, detector = settings.pop("parameters", {}), settings.get("detector") or "off"
    check_parameters(parameters, [one["method"] for one in named], detector)
    return [
        resolve_config(
            own,
            method=one["method"],
            seed=seed,
            parameters={**relevant_parameters(parameters, one["method"], detector), **one.get("parameters", {})},
            **settings,
        )
        for seed in seeds
        for one in named
    ]


def run_comparison(
    configs: Sequence[ExperimentConfig],
    out: Path,
    options: RunOptions,
    callback: Callback,
    own: OwnTask = NOTHING_OWN,
) -> list[dict[str, Any]]:
    """Run all configurations, each in its own subfolder of ``out``, and return their summaries."""
    require_folder_for_runs(out)
    runs = [(one, out / f"{METHODS.find(one['method']).name}-seed{one['seed']}") for one in configs]
    return run_all(runs, options, callback, own)
