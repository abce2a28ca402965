"""Compare several methods on the same data, seeds and batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedtaco.experiment.concurrent import require_folder_for_runs, run_all
from fedtaco.experiment.specs import MethodGiven, build_spec, check_parameters, choose_methods, relevant_parameters
from fedtaco.methods import METHODS
from fedtaco.runs.callbacks import Callback
from fedtaco.runs.options import RunOptions
from fedtaco.settings.own_task import NOTHING_OWN, OwnTask
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import DETECTORS


def plan_comparison(
    methods: Sequence[MethodGiven], seeds: Sequence[int], task: OwnTask = NOTHING_OWN, **settings: Any
) -> list[RunSpec]:
    """Return one run per method and seed.

    Parameters
    ----------
    methods
        The methods; none may be repeated. ``["all"]`` stands for every registered method.
    seeds
        Seeds with which each method is run.
    task
        The user's own data and model, if there are any.
    **settings
        Further settings, as in :func:`build_spec`. Each run receives those of ``parameters`` that belong to its method
        or to the detector.

    Raises
    ------
    InvalidInput
        If ``methods`` is empty, a method is repeated, or a setting is not valid.
    """
    chosen = choose_methods(methods)
    detector = DETECTORS.class_of(settings.get("detector") or "off")
    parameters = settings.pop("parameters", None) or {}
    check_parameters(parameters, [*map(METHODS.class_of, chosen), detector])
    return [
        build_spec(
            task,
            method=method,
            seed=seed,
            parameters=relevant_parameters(parameters, [METHODS.class_of(method), detector]),
            **settings,
        )
        for seed in seeds
        for method in chosen
    ]


def run_comparison(
    specs: Sequence[RunSpec], out: Path, options: RunOptions, callback: Callback
) -> list[dict[str, Any]]:
    """Do all runs, each in its own subfolder of ``out``, and return their summaries."""
    require_folder_for_runs(out)
    runs = [(one, out / f"{one.method.name}-seed{one.settings['seed']}") for one in specs]
    return run_all(runs, options, callback)
