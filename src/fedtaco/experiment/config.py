"""From given settings to the complete, checked configuration of a run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedtaco.data import check_partition, dataset_info
from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.defaults import DEFAULTS, ExperimentDefaults
from fedtaco.methods import METHODS, Method
from fedtaco.models import check_model
from fedtaco.parameters import Configurable, ParameterValue, domains
from fedtaco.runs.settings import ExperimentConfig, check_settings
from fedtaco.trust import DETECTORS, Detector, parse_behaviour
from fedtaco.version import __version__

Parameters = Mapping[str, ParameterValue]


def resolve_config(**settings: Any) -> ExperimentConfig:
    """Check the settings of a run and fill in defaults, of which some depend on the dataset.

    Parameters
    ----------
    **settings
        Keys of :class:`ExperimentConfig`; ``None`` counts as not given.

    Returns
    -------
    ExperimentConfig
        All settings, with every parameter of the method and the detector.

    Raises
    ------
    InvalidInput
        If a setting does not exist, is not valid, or would change nothing.

    Examples
    --------
    >>> config = resolve_config(method="taco", dataset="digits", rounds=3)
    >>> config["local_steps"], config["partition"], config["parameters"]
    (50, 'groups', {'taco.delta_scale': 'accumulated'})
    """
    given = {name: value for name, value in settings.items() if value is not None}
    info = dataset_info(given.get("dataset", "digits"))
    defaults: dict[str, Any] = dataclasses.asdict(DEFAULTS.get(info.name, ExperimentDefaults()))
    defaults |= {"model": info.model, "partition": info.partition}
    if given.get("freeloaders"):
        defaults["behaviour"] = "replay"
    config = cast(ExperimentConfig, check_settings(ExperimentConfig, {**defaults, **given}))
    check_model(config["model"])
    check_partition(config["partition"])
    _check_freeloaders(config)
    method, detector = create_parts(config)
    check_parameters(config["parameters"], [config["method"]], config["detector"])
    return {**config, "parameters": {**method.parameters(), **detector.parameters()}}


def create_parts(config: ExperimentConfig) -> tuple[Method, Detector]:
    """Return the method and the detector of a configuration, with their parameters."""
    parameters = config["parameters"]
    return METHODS.create(config["method"], parameters), DETECTORS.create(config["detector"], parameters)


def to_stored(config: ExperimentConfig) -> dict[str, Any]:
    """Return a configuration as a run folder stores it."""
    return {"fedtaco": __version__, **{name: value for name, value in config.items() if value is not None}}


def describe_run(config: ExperimentConfig) -> str:
    """Name a run for messages, as in "taco seed 0"."""
    return f"{config['method']} seed {config['seed']}"


def check_distinct(methods: Sequence[str]) -> None:
    """Raise InvalidInput if a comparison names a method more than once."""
    names = [METHODS.find(method).name for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")


def check_parameters(parameters: Parameters, methods: Sequence[str], detector: str) -> None:
    """Raise InvalidInput for a parameter that does not exist, or that no method or detector in use has."""
    used = _used(methods, detector)
    owners = _owners(used)
    for full_name in parameters:
        if full_name not in owners:
            raise unknown("parameter", full_name, owners)
        owner = owners[full_name]
        if owner not in used:
            home = f"--detector {owner.name}" if issubclass(owner, Detector) else f"the method {owner.name}"
            raise InvalidInput(f"{full_name} changes nothing here: it belongs to {home}, which is not used.")


def relevant_parameters(parameters: Parameters, method: str, detector: str) -> Parameters:
    """Return the parameters that belong to this method or detector."""
    used = _used([method], detector)
    owners = _owners(used)
    return {name: value for name, value in parameters.items() if name in owners and owners[name] in used}


def _used(methods: Sequence[str], detector: str) -> list[type[Configurable]]:
    return [*(METHODS.find(name) for name in methods), DETECTORS.find(detector)]


def _owners(used: Sequence[type[Configurable]]) -> dict[str, type[Configurable]]:
    """Return the class of each parameter, of all registered classes and those in use."""
    classes = (*DETECTORS.values(), *METHODS.values(), *used)
    return {f"{cls.name}.{name}": cls for cls in classes for name in domains(cls)}


def _check_freeloaders(config: ExperimentConfig) -> None:
    count, clients, behaviour = config["freeloaders"], config["clients"], config["behaviour"]
    if behaviour is None:
        return
    if count == 0:
        raise InvalidInput("behaviour changes nothing without freeloaders; say how many there are.")
    parsed = parse_behaviour(behaviour)
    if count > clients:
        raise InvalidInput(f"freeloaders is {count}, but there are only {clients} clients.")
    rounds = config["rounds"]
    if count == clients and all(parsed.freeloads(number, rounds) for number in range(1, rounds + 1)):
        raise InvalidInput("Every client is a freeloader, so that nobody would train; leave at least one honest.")
