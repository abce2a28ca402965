"""The work of the commands; this module imports torch, so the commands import it only when they run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtaco.cli.console import print_line, stderr
from fedtaco.cli.options import CliOptions
from fedtaco.cli.progress import ProgressBar
from fedtaco.errors import RunStopped
from fedtaco.experiment.comparison import plan_comparison, run_comparison
from fedtaco.experiment.config import folder_name, resolve_config
from fedtaco.experiment.runner import run_experiment
from fedtaco.experiment.sweep import ParameterGrid, Sweep, plan_sweep, run_sweep
from fedtaco.experiment.trackers import build_trackers
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder
from fedtaco.runs.callbacks import Callback, CallbackList
from fedtaco.runs.settings import SWEEP_VALIDATION, ExperimentConfig


@contextmanager
def _callbacks(options: CliOptions, configs: Sequence[ExperimentConfig]) -> Iterator[Callback]:
    """Connect the trackers, and show a progress bar for these runs."""
    trackers = build_trackers(options.track)
    with ProgressBar(configs) as bar:
        yield CallbackList([bar, *trackers])


def run_one(settings: dict[str, Any], options: CliOptions) -> tuple[dict[str, Any], Path]:
    """Run one experiment; return its summary and its folder."""
    config = resolve_config(**settings)
    name = METHODS.find(config["method"]).name
    default = Path("runs") / folder_name(f"{config['dataset']}-{name}-seed{config['seed']}", config)
    folder = RunFolder(options.out or default)
    try:
        with _callbacks(options, [config]) as callback:
            run_experiment(config, folder, options.run, callback)
    except RunStopped as stop:
        raise RunStopped(f"{stop} The records are in {folder.path}.") from stop
    return {"folder": str(folder.path), **(folder.summary() or {})}, folder.path


def compare(
    methods: Sequence[str], seeds: Sequence[int], settings: dict[str, Any], options: CliOptions
) -> tuple[list[dict[str, Any]], Path]:
    """Run a comparison; return the summaries and the folder of all runs."""
    configs = plan_comparison(methods, seeds, **settings)
    folder = options.out or Path("runs") / _shared_name(settings["dataset"], settings)
    with _callbacks(options, configs) as callback:
        summaries = run_comparison(configs, folder, options.run, callback)
    for summary in summaries:
        if summary["stopped"]:
            print_line(summary["stopped"], stderr, style="yellow")
    return summaries, folder


def sweep(
    methods: Sequence[str],
    grid: ParameterGrid,
    seeds: Sequence[int],
    budget: int | None,
    settings: dict[str, Any],
    options: CliOptions,
) -> tuple[Sweep, Path]:
    """Run a sweep; return the results of all its trials and the folder of all runs."""
    trials = plan_sweep(methods, grid, seeds, budget, **settings)
    folder = options.out or Path("runs") / _shared_name(
        f"{settings['dataset']}-sweep", settings, validation=SWEEP_VALIDATION
    )
    with _callbacks(options, [config for trial in trials for config in trial.configs]) as callback:
        return run_sweep(trials, folder, options.run, callback), folder


def _shared_name(start: str, settings: dict[str, Any], **usual: Any) -> str:
    """Return the default name of the folder of several runs, whichever their methods and seeds are."""
    shared = {name: value for name, value in settings.items() if name not in ("method", "seed", "parameters")}
    config = resolve_config(method="fedavg", **shared)  # any method: its parameters are not among the shared settings
    own = settings.get("parameters") or {}
    return folder_name(start, {**config, "parameters": {**config["parameters"], **own}}, **usual)
