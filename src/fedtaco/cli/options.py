"""Command-line options that several commands share, generated from the declared settings, and parsers of values."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import click
import typer
from click.core import ParameterSource

from fedtaco.errors import InvalidInput
from fedtaco.parameters import Configurable
from fedtaco.runs.options import RunOptions
from fedtaco.settings.declarations import EXPERIMENT, OUTPUT, TRAINING, ExperimentConfig, Setting, declared


def _option_type(name: str, hint: Any, setting: Setting) -> Any:
    """Return the annotation of the command's parameter that stands for a declared setting."""
    text, flags = setting.domain.help, [f"--{name.replace('_', '-')}"]
    metavar = None
    if setting.by_dataset:
        text = f"{text.removesuffix('.')}; the default depends on the dataset."
    if get_origin(hint) is Mapping:
        hint, flags, metavar = list[str] | None, ["--set"], "KEY=VALUE"
    elif Path in get_args(hint):
        hint = Path | None
    elif Sequence[str] in get_args(hint):
        hint, metavar = str | None, "NAMES"
    elif Configurable in get_args(hint):
        hint = str
    elif setting.by_dataset:
        hint = hint | None
    return Annotated[hint, typer.Option(*flags, help=text, rich_help_panel=setting.panel, metavar=metavar)]


def _options(kind: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a command for the declared settings of a class."""
    keyword, options = inspect.Parameter.KEYWORD_ONLY, {}
    for name, (hint, setting) in declared(kind).items():
        plain = not setting.by_dataset and isinstance(setting.default, int | float | str)
        default, annotation = setting.default if plain else None, _option_type(name, hint, setting)
        options[name] = inspect.Parameter(name, keyword, default=default, annotation=annotation)
    return options


SETTINGS, RUN_OPTIONS = _options(ExperimentConfig), _options(RunOptions)
MethodName = SETTINGS.pop("method").annotation
ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        help="A config.toml of another run, whose settings are used; options override them.",
        rich_help_panel=EXPERIMENT,
    ),
]
Partition, DataDir = SETTINGS["partition"].annotation, RUN_OPTIONS["data_dir"].annotation
Resume, Overwrite, Workers = (RUN_OPTIONS[name].annotation for name in ("resume", "overwrite", "workers"))
Seeds = Annotated[int, typer.Option(help="Number of seeds, starting with --seed.", rich_help_panel=TRAINING)]
Format = Annotated[str, typer.Option("--format", help="Output format: table or json.", rich_help_panel=OUTPUT)]
RESULT_FORMATS = ("table", "json", "csv", "markdown", "latex")


@dataclass(frozen=True)
class CliOptions:
    """How runs are done, in which folder, with which trackers, and how results are shown."""

    run: RunOptions
    out: Path | None
    track: Sequence[str]
    format: str
    """One of :data:`RESULT_FORMATS`."""
    plot: Path | None
    """File of a figure of accuracy over rounds."""


def _cli_options(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder; by default one in runs/ for these settings.", rich_help_panel=OUTPUT),
    ] = None,
    track: Annotated[
        list[str] | None, typer.Option(help="Also log runs to tensorboard, mlflow or wandb.", rich_help_panel=OUTPUT)
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", help=f"Output format: {', '.join(RESULT_FORMATS)}.", rich_help_panel=OUTPUT),
    ] = "table",
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw accuracy over rounds, to this PDF, PNG or SVG file.", rich_help_panel=OUTPUT),
    ] = None,
    **run: Any,
) -> CliOptions:
    if format_ not in RESULT_FORMATS:
        raise InvalidInput(f"format is '{format_}'; it must be one of {', '.join(RESULT_FORMATS)}.")
    if plot is not None:
        from fedtaco.report import PLOT_SUFFIXES, check_output_file
        from fedtaco.report.labels import figure_class

        check_output_file(plot, PLOT_SUFFIXES, "plot")
        figure_class()  # raises InvalidInput now, before anything is run, if matplotlib is missing
    return CliOptions(RunOptions(**run), out, track or [], format_, plot)


def with_experiment_settings(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of an experiment to a command, whose first arguments are ``settings`` and ``options``.

    ``settings`` contains those that are given on the command line; the others have their defaults.

    Parameters
    ----------
    **defaults
        Defaults of settings that are others for this command, as its help shows them.
    """
    options = {name: option.replace(default=defaults.get(name, option.default)) for name, option in SETTINGS.items()}
    return lambda command: _with_options(command, options)


def _with_options(command: Callable[..., None], settings: Mapping[str, inspect.Parameter]) -> Callable[..., None]:
    own, shared = (
        [*inspect.signature(function, eval_str=True).parameters.values()] for function in (command, _cli_options)
    )
    parameters = [*own[2:], *settings.values(), *shared[:-1], *RUN_OPTIONS.values()]

    def wrapper(**given: Any) -> None:
        values = {name: value for name in settings if is_given(name, value := given.pop(name))}
        if "parameters" in values:
            values["parameters"] = parse_parameters(values["parameters"])
        options = {name: given.pop(name) for name in ("out", "track", "format_", "plot", *RUN_OPTIONS)}
        command(values, _cli_options(**options), **given)

    panels = (EXPERIMENT, TRAINING, OUTPUT)
    parameters.sort(key=lambda parameter: panels.index(get_args(parameter.annotation)[1].rich_help_panel))
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    wrapper.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # typer reads it
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def is_given(name: str, value: Any) -> bool:
    """Return whether the command line gives a value for an option, and not its default."""
    return value is not None and click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def as_json(value: str) -> bool:
    """Return whether ``--format`` asks for JSON."""
    if value not in ("table", "json"):
        raise InvalidInput(f"format is '{value}'; it must be table or json.")
    return value == "json"


def parse_parameters(pairs: list[str] | None) -> dict[str, float | str]:
    """Parse the values of ``--set``.

    >>> parse_parameters(["taco.gamma=0.02", "taco.delta_scale=literal"])
    {'taco.gamma': 0.02, 'taco.delta_scale': 'literal'}
    """
    values: dict[str, float | str] = {}
    for pair in pairs or []:
        key, equals, text = pair.partition("=")
        if not equals or "." not in key:
            raise InvalidInput(f"--set is '{pair}'; write it as taco.gamma=0.02.")
        values[key.strip()] = _value(text)
    return values


def parse_grid(pairs: list[str]) -> dict[str, list[float | str]]:
    """Parse the values of ``--grid``.

    >>> parse_grid(["taco.gamma=0.01,0.02", "partition=iid,groups", "nesterov=true,false"])
    {'taco.gamma': [0.01, 0.02], 'partition': ['iid', 'groups'], 'nesterov': [True, False]}
    """
    grid: dict[str, list[float | str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        values = [_value(part) for part in text.split(",") if part.strip()]
        if not equals or not values:
            raise InvalidInput(f"--grid is '{pair}'; write it as taco.gamma=0.01,0.02.")
        if key.strip() in grid:
            raise InvalidInput(f"--grid names {key.strip()} twice; list all its values in one option.")
        grid[key.strip()] = values
    return grid


def _value(text: str) -> float | str:
    """Return a number, or ``true`` or ``false``, if the text is one, else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
    return value if isinstance(value, int | float) else text.strip()
