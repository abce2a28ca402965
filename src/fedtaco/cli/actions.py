"""The work of the commands; this module imports torch, so the commands import it only when they run."""

from pathlib import Path
from typing import Any

from fedtaco.cli.console import print_line, stderr
from fedtaco.cli.options import CliOptions
from fedtaco.errors import RunStopped
from fedtaco.experiment.config_file import read_config
from fedtaco.experiment.results import Comparison, Sweep
from fedtaco.experiment.several import compare, sweep
from fedtaco.experiment.specs import build_spec, folder_name
from fedtaco.experiment.sweep import ParameterGrid
from fedtaco.experiment.training import run_alone
from fedtaco.records import RunFolder
from fedtaco.runs.progress import ProgressBar
from fedtaco.settings.own_task import OwnTask


def run_one(settings: dict[str, Any], config_file: Path | None, options: CliOptions) -> Comparison:
    """Run one experiment, whose settings override those in the file, and return it as a comparison of one."""
    if config_file is not None:
        settings = read_config(config_file, **settings)
    spec = build_spec(OwnTask.from_settings(settings.get("dataset"), settings.get("model")), **settings)
    name = f"{spec.settings['dataset']}-{spec.method.name}-seed{spec.settings['seed']}"
    folder = options.out or Path("runs") / folder_name(name, spec)
    try:
        run_alone(spec, folder, options.run, [ProgressBar(stderr)], options.track)
    except RunStopped as stop:
        raise RunStopped(f"{stop} The records are in {folder}.") from stop
    return Comparison(folder, [{"folder": str(folder), **(RunFolder(folder).summary() or {})}])


def compare_methods(methods: list[str], seeds: int, settings: dict[str, Any], options: CliOptions) -> Comparison:
    """Run a comparison, and say why runs diverged."""
    comparison = compare(methods, seeds=seeds, **settings, **_arguments(options))
    for run in comparison.runs:
        if run["stopped"]:
            print_line(run["stopped"], stderr, style="yellow")
    return comparison


def tune_methods(
    methods: list[str],
    grid: ParameterGrid,
    budget: int | None,
    seeds: int,
    settings: dict[str, Any],
    options: CliOptions,
) -> Sweep:
    """Run a sweep."""
    return sweep(methods, grid, budget=budget, seeds=seeds, **settings, **_arguments(options))


def _arguments(options: CliOptions) -> dict[str, Any]:
    return {**vars(options.run), "out": options.out, "track": options.track, "callbacks": [ProgressBar(stderr)]}
