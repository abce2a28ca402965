"""From names and parameters to objects: methods (also a user's own) and detectors."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtaco.errors import InvalidInput, unknown
from fedtaco.methods import METHODS, Method, check_method_class, domains
from fedtaco.trust import DETECTORS, Guard, PaperDetector

Parameters = Mapping[str, float | str]


def method_class(name: str) -> type[Method]:
    """A registered method by name, or a user's own by ``package.module:Class``."""
    if ":" not in name:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
        return METHODS[name]
    module_name, _, class_name = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidInput(
            f"Cannot import '{module_name}' for the method '{name}': {error}. Write it as package.module:Class."
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise InvalidInput(f"The module '{module_name}' has no class '{class_name}'.")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InvalidInput(f"'{name}' is not a method: derive it from fedtaco.Method.")
    check_method_class(found)
    if METHODS.get(found.name, found) is not found:
        raise InvalidInput(f"The name '{found.name}' of the method '{name}' belongs to fedtaco's own; choose another.")
    return found


def refuse_repeats(methods: Sequence[str]) -> None:
    """Each method stands once in a comparison."""
    names = [method_class(method).name for method in methods]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"methods names {', '.join(repeated)} more than once.")


def method_spec(method: Method) -> str:
    """The name by which :func:`method_class` finds the class of a method again."""
    kind = type(method)
    return kind.name if METHODS.get(kind.name) is kind else f"{kind.__module__}:{kind.__qualname__}"


def as_method(method: Method | type[Method] | str) -> Method:
    """A method from itself, its class or its name."""
    if isinstance(method, str):
        return method_class(method)()
    return method() if isinstance(method, type) else method


def build_method(name: str, parameters: Parameters) -> Method:
    """A method with the parameters of its namespace."""
    kind = method_class(name)
    return kind(**_own(parameters, kind.name, kind))


def build_detector(name: str, parameters: Parameters) -> PaperDetector | Guard | None:
    """A detector with the parameters of its namespace; ``None`` for ``off``."""
    if name not in DETECTORS:
        raise unknown("detector", name, DETECTORS)
    kind = DETECTORS[name]
    return None if kind is None else kind(**_own(parameters, kind.namespace, kind))


def parameters_of(method: Method, detector: PaperDetector | Guard | None) -> dict[str, float | str]:
    """All parameters in force, as ``namespace.name``; one left to its rule (γ = 1/K) is not listed."""
    owners: list[tuple[str, Any]] = [(method.name, method)]
    if detector is not None:
        owners.append((detector.namespace, detector))
    values = {f"{space}.{name}": getattr(owner, name) for space, owner in owners for name in domains(owner)}
    return {name: value for name, value in values.items() if value is not None}


def check_overrides(overrides: Parameters, methods: Sequence[str], detector: str) -> None:
    """Refuse a parameter that does not exist, is out of range, or would change nothing."""
    kinds = [method_class(name) for name in methods]
    owners = _owners(kinds)
    for key, value in overrides.items():
        if key not in owners:
            raise unknown("parameter", key, owners)
        owner = owners[key]
        owner(**{key.partition(".")[2]: value})
        if owner not in (*kinds, DETECTORS.get(detector)):
            detectors = {kind: f"--detector {name}" for name, kind in DETECTORS.items()}
            home = detectors.get(owner) or f"the method {owner.name}"
            raise InvalidInput(f"{key} changes nothing here: it belongs to {home}, which is not used.")


def relevant(overrides: Parameters, method: str, detector: str) -> Parameters:
    """Those of the overrides that concern this method or detector."""
    kind = method_class(method)
    owners = _owners([kind])
    used = (kind, DETECTORS.get(detector))
    return {key: value for key, value in overrides.items() if key in owners and owners[key] in used}


def _owners(methods: Sequence[type[Method]]) -> dict[str, Any]:
    """Which class each parameter belongs to, among all that are known and these methods."""
    detectors = [kind for kind in DETECTORS.values() if kind is not None]
    spaces: list[tuple[str, Any]] = [(kind.namespace, kind) for kind in detectors]
    spaces += [(kind.name, kind) for kind in (*METHODS.values(), *methods)]
    return {f"{space}.{name}": owner for space, owner in spaces for name in domains(owner)}


def _own(parameters: Parameters, namespace: str, kind: type) -> dict[str, Any]:
    return {name: parameters[f"{namespace}.{name}"] for name in domains(kind) if f"{namespace}.{name}" in parameters}
