"""Build the specifications of runs from given settings, with defaults that depend on the dataset."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedtaco.data import BY_CLIENT, check_partition, count_own_clients, dataset_info
from fedtaco.errors import InvalidInput, unknown
from fedtaco.experiment.defaults import DEFAULTS, ExperimentDefaults
from fedtaco.methods import METHODS, Method
from fedtaco.models import check_model
from fedtaco.parameters import Configurable, Domain, ParameterValue, domains
from fedtaco.settings.checks import check_setting, check_settings
from fedtaco.settings.declarations import ExperimentConfig, declared
from fedtaco.settings.own_task import NOTHING_OWN, OwnTask, name_of
from fedtaco.settings.run_spec import RunSpec
from fedtaco.trust import DETECTORS, Detector

Parameters = Mapping[str, ParameterValue]
ALL_METHODS = "all"
"""The word that stands for all registered methods in a comparison."""
MethodGiven = Method | type[Method] | str
"""A method, its class, or its name."""


def build_spec(
    task: OwnTask = NOTHING_OWN,
    /,
    method: MethodGiven = "taco",
    detector: Detector | type[Detector] | str = "off",
    **settings: Any,
) -> RunSpec:
    """Check the settings of a run and fill in defaults, some of which depend on the dataset.

    Parameters
    ----------
    task
        The user's own data and model, if there are any.
    method, detector
        Instances, classes or names.
    **settings
        Keys of :class:`ExperimentConfig`; ``None`` counts as not given. Entries of ``parameters`` replace defaults of
        the method and the detector.

    Returns
    -------
    RunSpec
        The run.

    Raises
    ------
    InvalidInput
        If a setting does not exist, is not valid, or would have no effect.

    Examples
    --------
    >>> spec = build_spec(method="taco", dataset="digits", rounds=3)
    >>> spec.settings["local_steps"], spec.settings["partition"], spec.config["parameters"]
    (50, 'groups', {'taco.delta_scale': 'accumulated'})
    """
    given = {name: value for name, value in settings.items() if value is not None}
    parameters = check_setting(ExperimentConfig, "parameters", given.pop("parameters", {}))
    check_parameters(parameters, [METHODS.class_of(method), DETECTORS.class_of(detector)])
    if task.dataset is None:
        info = dataset_info(check_setting(ExperimentConfig, "dataset", given.get("dataset", "digits")))
        defaults = dataclasses.asdict(DEFAULTS.get(info.name, ExperimentDefaults()))
    else:
        info = task.dataset.info
        clients = count_own_clients(task.dataset, given.get("partition"), given.get("clients"))
        defaults = {**dataclasses.asdict(ExperimentDefaults()), "clients": clients}
    model = info.model if task.model is None else name_of(task.model)
    defaults |= {"dataset": info.name, "model": model, "partition": info.partition}
    if "local_epochs" in given:
        require_steps_or_epochs(given)
        del defaults["local_steps"]
    if given.get("freeloaders"):
        defaults["behaviour"] = "replay"
    checked = check_settings(ExperimentConfig, {**defaults, **given})
    if task.model is None:
        check_model(checked["model"])
    if info.partition != BY_CLIENT:
        check_partition(checked["partition"])
    return RunSpec.from_settings(
        METHODS.instance(method, parameters),
        checked,
        detector=DETECTORS.instance(detector, parameters),
        task=task,
    )


def require_steps_or_epochs(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput unless one of ``local_steps`` and ``local_epochs`` is given."""
    has_steps, has_epochs = (given.get(name) is not None for name in ("local_steps", "local_epochs"))
    if has_steps == has_epochs:
        which = "Both local_steps and local_epochs are" if has_steps else "Neither local_steps nor local_epochs is"
        raise InvalidInput(f"{which} given; give one of them.")


def folder_name(start: str, spec: RunSpec, **usual: Any) -> str:
    """Return the default name of the folder of one or several runs, which differs for different settings.

    Parameters
    ----------
    start
        What the name begins with; it says what distinguishes folders besides settings. Characters that are unusual in
        names of folders are replaced.
    spec
        One run. If some settings are not the defaults of its method and dataset, the name ends in a hash of these and
        of the user's own data and model.
    **usual
        Settings that count as defaults here.

    Examples
    --------
    >>> folder_name("digits-taco-seed0", build_spec(method="taco"))
    'digits-taco-seed0'
    >>> folder_name("digits-taco-seed0", build_spec(method="taco", rounds=3))
    'digits-taco-seed0-aa5c2887'
    """
    return _hashed_name(start, spec, spec.to_stored(), usual)


def shared_folder_name(start: str, specs: Sequence[RunSpec], given: Mapping[str, Any], **usual: Any) -> str:
    """Return the default name of the folder of several runs, whichever their methods and seeds are.

    Parameters
    ----------
    start
        What the name begins with.
    specs
        The runs.
    given
        The settings that the user gave for all of them, and the parameters of any.
    **usual
        Settings that count as defaults here.
    """
    shared = {name: value for name, value in given.items() if name not in ("seed", "parameters")}
    detector = specs[0].detector
    spec = build_spec(specs[0].task, method="fedavg", **{**shared, "detector": detector})  # parameters of no method
    changed = dict(given.get("parameters") or {})
    for one in specs:
        defaults = type(one.method)().parameters()
        changed |= {name: value for name, value in one.method.parameters().items() if value != defaults.get(name)}
    stored = spec.to_stored()
    return _hashed_name(start, spec, {**stored, "parameters": {**stored["parameters"], **changed}}, usual)


def _hashed_name(start: str, spec: RunSpec, stored: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    named = {name: spec.settings[name] for name in ("dataset", "seed")}
    defaults = build_spec(spec.task, method=type(spec.method), **named, **usual).config
    changed = {name: value for name, value in stored.items() if value != defaults.get(name)}
    changed.pop("fedtaco")
    plain = re.sub(r"[^\w.:+-]+", "-", start)
    changed |= {} if plain == start else {"name": start}
    digest = hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()
    return f"{plain}-{digest[:8]}" if changed else plain


def choose_methods(methods: Sequence[MethodGiven]) -> list[MethodGiven]:
    """Return the methods of a comparison; the word ``all`` stands for every registered method.

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
    names = [METHODS.class_of(one).name for one in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")
    return list(methods)


def check_parameters(parameters: Parameters, in_use: Sequence[type[Configurable]]) -> None:
    """Raise InvalidInput for a parameter that does not exist, or belongs to no method or detector in use."""
    owners = _parameter_owners(in_use)
    for full_name in parameters:
        if full_name not in owners:
            raise unknown("parameter", full_name, owners)
        owner = owners[full_name]
        if owner not in in_use:
            raise InvalidInput(
                f"{full_name} has no effect: it belongs to the {owner.kind} {owner.name}, which is not used."
            )


def relevant_parameters(parameters: Parameters, in_use: Sequence[type[Configurable]]) -> dict[str, ParameterValue]:
    """Return those of ``parameters`` that belong to one of these classes."""
    owners = _parameter_owners(in_use)
    return {name: value for name, value in parameters.items() if name in owners and owners[name] in in_use}


def find_domain(name: str, spec: RunSpec) -> Domain:
    """Return the valid values of a setting, or of a parameter of the method or detector of a run."""
    if "." not in name:
        return declared(ExperimentConfig)[name][1].domain
    owner = _parameter_owners([type(spec.method), type(spec.detector)])[name]
    return domains(owner)[name.partition(".")[2]]


def _parameter_owners(in_use: Sequence[type[Configurable]]) -> dict[str, type[Configurable]]:
    """Return the class to which each parameter belongs, for all registered classes and users' own classes in use."""
    classes = (*DETECTORS.values(), *METHODS.values(), *in_use)
    return {f"{cls.name}.{name}": cls for cls in classes for name in domains(cls)}
