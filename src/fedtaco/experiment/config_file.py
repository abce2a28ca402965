"""Read the settings of a run from a ``config.toml``, without importing code that only the file names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtaco.codecs import CODECS
from fedtaco.data import BY_CLIENT, is_own_dataset, is_own_partition
from fedtaco.errors import InvalidInput
from fedtaco.experiment.specs import relevant_parameters
from fedtaco.files import reading
from fedtaco.methods import METHODS
from fedtaco.models import is_own_model
from fedtaco.records.documents import parse_toml, read_bounded
from fedtaco.settings.checks import check_names, check_setting
from fedtaco.settings.declarations import ExperimentConfig
from fedtaco.trust import BEHAVIOURS, DETECTORS

NOT_SETTINGS = ("schema", "checksum", "fedtaco", "ran_by", "folder", "own")
"""Entries of a run's ``config.toml`` that are not settings."""
NAMES_CODE = {
    "method": lambda spec: ":" in spec,
    "detector": lambda spec: ":" in spec,
    "behaviour": lambda spec: ":" in BEHAVIOURS.split_options(spec)[0],
    "compress": lambda spec: ":" in CODECS.split_options(spec)[0],
    "dataset": is_own_dataset,
    "model": is_own_model,
    "partition": is_own_partition,
}
"""For each setting that may name a user's code, whether a value does."""


def read_config(path: str | Path, **changes: Any) -> dict[str, Any]:
    """Read the settings of a run from its ``config.toml``, or from a file with such entries that you wrote.

    No code is imported. If the file names code of your own, such as ``model = "mine:Net"``, then ``changes`` must name
    it too, so that running a stranger's file does not run a stranger's code.

    Parameters
    ----------
    path
        The file.
    **changes
        Settings that replace those in the file; entries of ``parameters`` are added to it.

    Returns
    -------
    dict
        Settings for :func:`fedtaco.run`.

    Raises
    ------
    InvalidInput
        If the file cannot be read, contains something else than settings, names code that ``changes`` does not name,
        or is of a run on data or of a model that were given in Python.

    Examples
    --------
    >>> import fedtaco
    >>> fedtaco.run(**read_config("runs/first/config.toml", seed=1))  # doctest: +SKIP
    """
    file, changes = Path(path), {name: value for name, value in changes.items() if value is not None}
    if not file.is_file():
        raise InvalidInput(f"There is no file {file}; name the config.toml of a run.")
    with reading(file, problem="is not valid"):
        stored = parse_toml(read_bounded(file))
    given = {name: value for name, value in stored.items() if name not in NOT_SETTINGS}
    check_names(ExperimentConfig, given)
    settings = {name: check_setting(ExperimentConfig, name, value) for name, value in given.items()}
    _refuse_code(file, settings, changes)
    _refuse_given_in_python(file, {**settings, "own": stored.get("own")}, changes)
    if settings.get("partition") == BY_CLIENT:
        settings = {name: value for name, value in settings.items() if name not in ("partition", "clients")}
    combined = {**settings, **changes}
    parameters = settings.get("parameters", {})
    if "method" in changes or "detector" in changes:
        method, detector = combined.get("method", "taco"), combined.get("detector", "off")
        parameters = relevant_parameters(parameters, [METHODS.class_of(method), DETECTORS.class_of(detector)])
    return {**combined, "parameters": {**parameters, **changes.get("parameters", {})}}


def _refuse_code(file: Path, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a file names code that is not named otherwise."""
    given = {name: value for name, value in settings.items() if name in NAMES_CODE and name not in changes}
    named = {name: value for name, value in given.items() if isinstance(value, str) and NAMES_CODE[name](value)}
    if named:
        flags = " ".join(f"--{name} {value}" for name, value in named.items())
        arguments = ", ".join(f"{name}='{value}'" for name, value in named.items())
        raise InvalidInput(
            f"{file} names code, which is only imported if you name it too: add {flags} (in Python, {arguments})."
        )


def _refuse_given_in_python(file: Path, stored: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a file is of a run whose data or model were given in Python, and none is named."""
    own = stored["own"] if isinstance(stored["own"], dict) else {}
    for name, entry in (("dataset", "data"), ("model", "weights")):
        if entry in own and name not in changes and not NAMES_CODE[name](stored.get(name, "")):
            raise InvalidInput(
                f"{file} is of a run whose {name}, '{stored.get(name)}', was given in Python; name one instead: add "
                f"--{name} (in Python, {name}=)."
            )
