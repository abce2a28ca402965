"""Resolve given settings into the complete, checked configuration of a run."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from fedtaco.codecs import check_compression, parse_codec
from fedtaco.data import BY_CLIENT, check_partition, count_own_clients, dataset_info
from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.defaults import DEFAULTS, ExperimentDefaults
from fedtaco.experiment.own_task import NOTHING_OWN, OwnTask, name_of
from fedtaco.methods import METHODS, Method, check_optimizer, check_participation
from fedtaco.models import check_model
from fedtaco.parameters import Configurable, Domain, ParameterValue, domains
from fedtaco.records.formatting import pluralize
from fedtaco.registry import Registry
from fedtaco.runs.constants import make_optimizer
from fedtaco.runs.setting_checks import check_setting, check_settings
from fedtaco.runs.settings import ExperimentConfig, declared
from fedtaco.trust import DETECTORS, Detector, parse_behaviour
from fedtaco.version import __version__

Parameters = Mapping[str, ParameterValue]
ALL_METHODS = "all"
"""The word that stands for all registered methods in a comparison."""
MethodGiven = Method | type[Method] | str
"""A method, its class, or its name."""


def resolve_config(own: OwnTask = NOTHING_OWN, /, **settings: Any) -> ExperimentConfig:
    """Check the settings of a run and fill in defaults, some of which depend on the dataset.

    Parameters
    ----------
    own
        The user's own data and model, if there are any.
    **settings
        Keys of :class:`ExperimentConfig`; ``None`` counts as not given. The method and the detector may be given as
        instances, whose parameters then count as given.

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
    given = with_names({name: value for name, value in settings.items() if value is not None})
    if own.dataset is None:
        info = dataset_info(check_setting(ExperimentConfig, "dataset", given.get("dataset", "digits")))
        defaults = dataclasses.asdict(DEFAULTS.get(info.name, ExperimentDefaults()))
    else:
        info = own.dataset.info
        clients = count_own_clients(own.dataset, given.get("partition"), given.get("clients"))
        defaults = {**dataclasses.asdict(ExperimentDefaults()), "clients": clients}
    model = info.model if own.model is None else name_of(own.model)
    defaults |= {"dataset": info.name, "model": model, "partition": info.partition}
    if "local_epochs" in given:
        require_steps_or_epochs(given)
        del defaults["local_steps"]
    if given.get("freeloaders"):
        defaults["behaviour"] = "replay"
    config = cast(ExperimentConfig, check_settings(ExperimentConfig, {**defaults, **given}))
    if own.model is None:
        check_model(config["model"])
    if info.partition != BY_CLIENT:
        check_partition(config["partition"])
    _check_freeloaders(config)
    if config["fine_tune_steps"] and not config["validation"] and not own.client_tests:
        raise InvalidInput(
            "fine_tune_steps has no effect without samples of each client to evaluate on; hold some out (validation), "
            "or give some (client_tests)."
        )
    method, detector = create_method_and_detector(config)
    check_optimizer(method, make_optimizer(config))
    check_compression(method, parse_codec(config["compress"]))
    check_participation(method, config["participation"])
    if method.needs_all_clients and (config["client_dropout"] or config["deadline"] is not None):
        raise InvalidInput(f"{method.name} needs all clients in every round; omit client_dropout and deadline.")
    check_parameters(config["parameters"], [config["method"]], config["detector"])
    return {**config, "parameters": {**method.parameters(), **detector.parameters()}}


def require_steps_or_epochs(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless one of ``local_steps`` and ``local_epochs`` is given."""
    has_steps, has_epochs = (given.get(name) is not None for name in ("local_steps", "local_epochs"))
    if has_steps == has_epochs:
        which = "Both local_steps and local_epochs are" if has_steps else "Neither local_steps nor local_epochs is"
        raise InvalidInput(f"{which} given; give one of them.")


def with_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which method and detector are names, and parameters that they change are among the others."""
    named, parameters = dict(settings), dict(settings.get("parameters") or {})
    registries: dict[str, Registry[Any]] = {"method": METHODS, "detector": DETECTORS}
    for name, registry in registries.items():
        given = settings.get(name)
        if given is not None and not isinstance(given, str):
            instance = registry.instance(given)
            defaults = type(instance)().parameters()
            parameters |= {key: value for key, value in instance.parameters().items() if value != defaults.get(key)}
            named[name] = registry.spec(instance)
    return {**named, "parameters": parameters} if parameters else named


def create_method_and_detector(config: ExperimentConfig) -> tuple[Method, Detector]:
    """Return the method and the detector of a configuration, with their parameters."""
    parameters = config["parameters"]
    return METHODS.create(config["method"], parameters), DETECTORS.create(config["detector"], parameters)


def to_stored(config: Mapping[str, Any], own: OwnTask = NOTHING_OWN) -> dict[str, Any]:
    """Return a configuration as a run folder stores it."""
    about_own = own.to_stored(config["seed"])
    settings = {name: value for name, value in config.items() if value is not None}
    return {"fedtaco": __version__, **settings, **({"own": about_own} if about_own else {})}


def folder_name(start: str, config: ExperimentConfig, own: OwnTask = NOTHING_OWN, **usual: Any) -> str:
    """Return the default name of the folder of one or several runs, which differs for different settings.

    Parameters
    ----------
    start
        What the name begins with; it says what distinguishes folders besides settings. Characters that are unusual in
        names of folders are replaced.
    config
        The settings of one run. If some are not the defaults of its method and dataset, the name ends in a hash of
        these.
    own
        The user's own data and model, which are part of the hash.
    **usual
        Settings that count as defaults here.

    Examples
    --------
    >>> folder_name("digits-taco-seed0", resolve_config(method="taco"))
    'digits-taco-seed0'
    >>> folder_name("digits-taco-seed0", resolve_config(method="taco", rounds=3))
    'digits-taco-seed0-aa5c2887'
    """
    named: tuple[Literal["method", "dataset", "seed"], ...] = ("method", "dataset", "seed")
    defaults: Mapping[str, Any] = resolve_config(own, **{name: config[name] for name in named}, **usual)
    changed = {name: value for name, value in to_stored(config, own).items() if value != defaults.get(name)}
    changed.pop("fedtaco")
    plain = re.sub(r"[^\w.:+-]+", "-", start)
    changed |= {} if plain == start else {"name": start}
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    return f"{plain}-{digest[:8]}" if changed else plain


def shared_folder_name(start: str, settings: Mapping[str, Any], own: OwnTask, **usual: Any) -> str:
    """Return the default name of the folder of several runs, whichever their methods and seeds are."""
    shared = {name: value for name, value in settings.items() if name not in ("method", "seed", "parameters")}
    config = resolve_config(own, method="fedavg", **shared)  # any method: its parameters are not among the shared ones
    given = settings.get("parameters") or {}
    return folder_name(start, {**config, "parameters": {**config["parameters"], **given}}, own, **usual)


def choose_methods(methods: Sequence[MethodGiven]) -> list[dict[str, Any]]:
    """Return the methods of a comparison as settings; the word ``all`` stands for every registered method.

    Raises
    ------
    InvalidInput
        If no method is named, one is named more than once, or ``all`` is named together with others.

    Examples
    --------
    >>> len(choose_methods(["all"])) == len(METHODS)
    True
    """
    if isinstance(methods, str):
        raise InvalidInput(f"methods is '{methods}'; give a list, such as ['{methods}'].")
    if not methods:
        raise InvalidInput("methods is empty; name at least one, such as fedavg,taco.")
    if ALL_METHODS in methods:
        if len(methods) > 1:
            raise InvalidInput(f"methods names {ALL_METHODS} together with others; use it alone, or list names.")
        methods = list(METHODS)
    named = [with_names({"method": method}) for method in methods]
    names = [METHODS.find(one["method"]).name for one in named]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")
    return named


def check_parameters(parameters: Parameters, methods: Sequence[str], detector: str) -> None:
    """Raise InvalidInput for a parameter that does not exist, or belongs to no method or detector in use."""
    in_use = _classes_in_use(methods, detector)
    owners = _parameter_owners(in_use)
    for full_name in parameters:
        if full_name not in owners:
            raise unknown("parameter", full_name, owners)
        owner = owners[full_name]
        if owner not in in_use:
            raise InvalidInput(
                f"{full_name} has no effect: it belongs to the {owner.kind} {owner.name}, which is not used."
            )


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
