"""The options that commands share, and how their values are read."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console

from fedtaco.errors import InvalidInput

DATA_DIR_HELP = "Where datasets are; else FEDTACO_DATA, else the user's cache folder."
PARTITION_HELP = (
    "Who holds which samples: groups, dirichlet:0.5, dirichlet-client:0.5, shards:2, quantity:0.5, iid, natural, "
    "or flwr:ClassName of flwr-datasets; the dataset's own by default."
)
BEHAVIOUR_HELP = (
    "What they do: replay (send the last global move; the default), replay-scaled:0.3, replay-noise:0.5, zero, "
    "disguised, random, each also with :late (honest for a third of the rounds) or :intermittent (every other round); "
    "or attack: sign-flip, label-flip, gaussian."
)
EXPERIMENT, TRAINING, OUTPUT = "What is run", "How it is trained", "What comes out"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:  # noqa: A002 - typer's word
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def experiment_settings(
    dataset: Annotated[
        str, _option("Dataset by name, as 'fedtaco data list' shows; it sets the defaults of what follows.", EXPERIMENT)
    ] = "digits",
    data_dir: Annotated[Path | None, _option(DATA_DIR_HELP, EXPERIMENT)] = None,
    model: Annotated[
        str | None,
        _option("mlp, mlp:64-32, cnn, resnet18, resnet18:batchnorm or lstm; the dataset's own by default.", EXPERIMENT),
    ] = None,
    clients: Annotated[int, _option("Number of clients, N.", EXPERIMENT)] = 20,
    partition: Annotated[str | None, _option(PARTITION_HELP, EXPERIMENT)] = None,
    freeloaders: Annotated[
        int, _option("How many clients misbehave, chosen by the seed from all groups alike.", EXPERIMENT)
    ] = 0,
    behaviour: Annotated[str | None, _option(BEHAVIOUR_HELP, EXPERIMENT)] = None,
    detector: Annotated[
        str,
        _option(
            "Freeloader detection: off; guard, which leaves out uploads with nothing new in them and expels clients "
            "that send such; or paper, TACO's rule, which expels clients whose α reached taco.kappa (0.6) in "
            "taco.max_strikes rounds (a fifth of all), and honest ones too where data are even.",
            EXPERIMENT,
        ),
    ] = "off",
    set_: Annotated[
        list[str] | None,
        _option(
            "A parameter, such as taco.gamma=0.02; may be repeated. 'fedtaco methods' lists them.",
            EXPERIMENT,
            "--set",
            metavar="KEY=VALUE",
        ),
    ] = None,
    target: Annotated[float | None, _option("Test accuracy that rounds are counted to.", EXPERIMENT)] = None,
    validation: Annotated[
        float,
        _option("Part of every client's samples to hold out, for tuning and for choosing a round.", EXPERIMENT),
    ] = 0.0,
    rounds: Annotated[int | None, _option("Communication rounds, T.", TRAINING)] = None,
    local_steps: Annotated[int | None, _option("Local steps of a client in a round, K.", TRAINING)] = None,
    batch_size: Annotated[int, _option("Samples in a local step.", TRAINING)] = 64,
    local_lr: Annotated[float | None, _option("Local learning rate, η_l.", TRAINING)] = None,
    server_lr: Annotated[
        float | None, _option("Server learning rate, η_g; K·η_l by default: the plain mean.", TRAINING)
    ] = None,
    weighting: Annotated[str, _option("What an upload counts: uniform, or by samples.", TRAINING)] = "uniform",
    participation: Annotated[float, _option("Fraction of the clients in a round.", TRAINING)] = 1.0,
    engine: Annotated[
        str,
        _option(
            "How clients are run: serial (one by one, exact seconds), pool (on all cores, the same bits), batched "
            "(many in one computation), or auto, which chooses by a fixed rule and says so.",
            TRAINING,
        ),
    ] = "auto",
    workers: Annotated[
        int | None, _option("Processes of the engines pool and batched; one a core by default.", TRAINING)
    ] = None,
    device: Annotated[
        str, _option("Where models compute: cpu, cuda, mps, or auto, an accelerator if there is one.", TRAINING)
    ] = "cpu",
    seed: Annotated[int, _option("Seed of everything random; the first of --seeds.", TRAINING)] = 0,
) -> dict[str, Any]:
    """The settings of an experiment, as :class:`fedtaco.Experiment` takes them."""
    settings = dict(locals())
    settings["parameters"] = parse_overrides(settings.pop("set_"))
    return settings


Seeds = Annotated[int, _option("How many seeds.", TRAINING)]
Resume = Annotated[bool, _option("Go on with what the folder holds.", OUTPUT, "--resume")]
Overwrite = Annotated[bool, _option("Replace what the folder holds.", OUTPUT, "--overwrite")]
Out = Annotated[Path | None, _option("Folder to write to; below runs/ by default.", OUTPUT)]
Track = Annotated[
    list[str] | None,
    _option("Show runs as they go in tensorboard, mlflow or wandb; may be repeated.", OUTPUT, "--track"),
]
Format = Annotated[str, _option("table, or json on standard output.", OUTPUT, "--format")]


def with_experiment_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an experiment; it is called with them as ``settings``."""
    names = set(inspect.signature(experiment_settings).parameters)

    def wrapper(**given: Any) -> None:
        own = {name: value for name, value in given.items() if name not in names}
        shared = {name: value for name, value in given.items() if name in names}
        command(settings=experiment_settings(**shared), **own)

    parameters = []
    for function in (command, experiment_settings):
        hints = get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            if name != "settings":
                keyword = inspect.Parameter.KEYWORD_ONLY
                parameters.append(parameter.replace(kind=keyword, annotation=hints[name]))
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def as_json(value: str) -> bool:
    """Whether ``--format`` asks for JSON."""
    if value not in ("table", "json"):
        raise InvalidInput(f"format is '{value}'; it must be table or json.")
    return value == "json"


def parse_overrides(pairs: list[str] | None) -> dict[str, float | str]:
    """The values of ``--set``.

    >>> parse_overrides(["taco.gamma=0.02", "taco.delta_scale=literal"])
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
    """The values of ``--grid``.

    >>> parse_grid(["taco.gamma=0.01,0.02", "partition=iid,groups"])
    {'taco.gamma': [0.01, 0.02], 'partition': ['iid', 'groups']}
    """
    grid: dict[str, list[float | str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        values = [_value(part) for part in text.split(",") if part.strip()]
        if not equals or not values:
            raise InvalidInput(f"--grid is '{pair}'; write it as taco.gamma=0.01,0.02.")
        if key.strip() in grid:
            raise InvalidInput(f"--grid names {key.strip()} twice; list all its values in one.")
        grid[key.strip()] = values
    return grid


def say(sentence: str) -> None:
    """A line of standard output, just as it is: a path in it is neither wrapped nor read as markup."""
    Console().print(sentence, highlight=False, markup=False, soft_wrap=True)


def _value(text: str) -> float | str:
    """A number, or else a word."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text.strip()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else text.strip()
