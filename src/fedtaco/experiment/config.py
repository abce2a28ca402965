"""Resolve given settings into the complete, checked configuration of a run."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fedtaco.data import check_partition, dataset_info
from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.defaults import DEFAULTS, ExperimentDefaults
from fedtaco.methods import METHODS, Method, check_optimizer
from fedtaco.models import check_model
from fedtaco.parameters import Configurable, Domain, ParameterValue, domains
from fedtaco.records.formatting import pluralize
from fedtaco.runs.constants import make_optimizer
from fedtaco.runs.settings import ExperimentConfig, check_settings, declared
from fedtaco.trust import DETECTORS, Detector, parse_behaviour
from fedtaco.version import __version__

Parameters = Mapping[str, ParameterValue]


def resolve_config(**settings: Any) -> ExperimentConfig:
    """Check the settings of a run and fill in defaults, some of which depend on the dataset.

    Parameters
    ----------
    **settings
        Keys of :class:`ExperimentConfig`; ``None`` counts as not given.

    Returns
    -------
    ExperimentConfig
        All settings, including the parameters of the method and the detector; those that are derived (γ = 1/K)
        are omitted.

    Raises
    ------
    InvalidInput
        If a setting does not exist, is not valid, or would have no effect.

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
    if "local_epochs" in given:
        require_steps_or_epochs(given)
        del defaults["local_steps"]
    if given.get("freeloaders"):
        defaults["behaviour"] = "replay"
    config = cast(ExperimentConfig, check_settings(ExperimentConfig, {**defaults, **given}))
    check_model(config["model"])
    check_partition(config["partition"])
    _check_freeloaders(config)
    if config["fine_tune_steps"] and not config["validation"]:
        raise InvalidInput(
            "fine_tune_steps has no effect without samples of each client to evaluate on; hold some out (validation)."
        )
    method, detector = create_method_and_detector(config)
    check_optimizer(method, make_optimizer(config))
    check_parameters(config["parameters"], [config["method"]], config["detector"])
    return {**config, "parameters": {**method.parameters(), **detector.parameters()}}


def require_steps_or_epochs(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless one of ``local_steps`` and ``local_epochs`` is given."""
    has_steps, has_epochs = (given.get(name) is not None for name in ("local_steps", "local_epochs"))
    if has_steps == has_epochs:
        which = "Both local_steps and local_epochs are" if has_steps else "Neither local_steps nor local_epochs is"
        raise InvalidInput(f"{which} given; give one of them.")


def create_method_and_detector(config: ExperimentConfig) -> tuple[Method, Detector]:
    """Return the method and the detector of a configuration, with their parameters."""
    parameters = config["parameters"]
    return METHODS.create(config["method"], parameters), DETECTORS.create(config["detector"], parameters)


def to_stored(config: ExperimentConfig) -> dict[str, Any]:
    """Return a configuration as a run folder stores it."""
    return {"fedtaco": __version__, **{name: value for name, value in config.items() if value is not None}}


def folder_name(start: str, config: ExperimentConfig, **usual: Any) -> str:
    """Return the default name of the folder of one or several runs, which differs for different settings.

    Parameters
    ----------
    start
        What the name begins with; it says what distinguishes folders besides settings.
    config
        The settings of one run. If some are not the defaults of its method and dataset, the name ends in a hash of
        these.
    **usual
        Settings that count as defaults here.

    Examples
    --------
    >>> folder_name("digits-taco-seed0", resolve_config(method="taco"))
    'digits-taco-seed0'
    >>> folder_name("digits-taco-seed0", resolve_config(method="taco", rounds=3))
    'digits-taco-seed0-aa5c2887'
    """
    defaults = resolve_config(**{name: config[name] for name in ("method", "dataset", "seed")}, **usual)
    changed = {name: value for name, value in config.items() if value != defaults.get(name)}
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    return f"{start}-{digest[:8]}" if changed else start


def describe_run(config: ExperimentConfig) -> str:
    """Name a run for messages, as in "taco seed 0"."""
    return f"{config['method']} seed {config['seed']}"


def check_distinct(methods: Sequence[str]) -> None:
    """Raise InvalidInput if a comparison names no method, or one more than once."""
    if not methods:
        raise InvalidInput("methods is empty; name at least one, such as fedavg,taco.")
    names = [METHODS.find(method).name for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")


def check_parameters(parameters: Parameters, methods: Sequence[str], detector: str) -> None:
    """Raise InvalidInput for a parameter that does not exist, or belongs to no method or detector in use."""
    in_use = _classes_in_use(methods, detector)
    owners = _parameter_owners(in_use)
    for full_name in parameters:
        if full_name not in owners:
            raise unknown("parameter", full_name, owners)
        owner = owners[full_name]
        if owner not in in_use:
            owner_name = f"--detector {owner.name}" if issubclass(owner, Detector) else f"the method {owner.name}"
            raise InvalidInput(f"{full_name} has no effect: it belongs to {owner_name}, which is not used.")


def relevant_parameters(parameters: Parameters, method: str, detector: str) -> Parameters:
    """Return those of ``parameters`` that belong to this method or detector."""
    in_use = _classes_in_use([method], detector)
    owners = _parameter_owners(in_use)
    return {name: value for name, value in parameters.items() if name in owners and owners[name] in in_use}


def find_domain(name: str, method: str, detector: str) -> Domain:
    """Return the valid values of a setting, or of a parameter of this method or detector."""
    if "." not in name:
        return declared(ExperimentConfig)[name][1].domain
    owner = _parameter_owners(_classes_in_use([method], detector))[name]
    return domains(owner)[name.partition(".")[2]]


def _classes_in_use(methods: Sequence[str], detector: str) -> list[type[Configurable]]:
    return [*(METHODS.find(name) for name in methods), DETECTORS.find(detector)]


def _parameter_owners(in_use: Sequence[type[Configurable]]) -> dict[str, type[Configurable]]:
    """Return the class to which each parameter belongs, for all registered classes and users' own classes in use."""
    classes = (*DETECTORS.values(), *METHODS.values(), *in_use)
    return {f"{cls.name}.{name}": cls for cls in classes for name in domains(cls)}


def _check_freeloaders(config: ExperimentConfig) -> None:
    count, clients, behaviour = config["freeloaders"], config["clients"], config["behaviour"]
    if behaviour is None:
        return
    if count == 0:
        raise InvalidInput("behaviour has no effect without freeloaders; set their number (freeloaders).")
    parsed = parse_behaviour(behaviour)
    if count > clients:
        raise InvalidInput(f"freeloaders is {count}, but there are only {pluralize(clients, 'client')}.")
    rounds = config["rounds"]
    if count == clients and all(parsed.freeloads(number, rounds) for number in range(1, rounds + 1)):
        raise InvalidInput("Every client is a freeloader, so no client would train; leave at least one honest.")
