"""Run a Flower app on this machine, on a SuperLink and SuperNodes that are started for this run only."""

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedtaco.errors import InvalidInput, RunStopped, unknown
from fedtaco.files import reading
from fedtaco.flower.loopback import Loopback
from fedtaco.parameters import Domain
from fedtaco.records import RunFolder

NODES = Domain("Number of SuperNodes.", low=2, high=100, whole=True)
OPTIONS = {"checkpoint": "--out", "min-available-nodes": "--nodes", "overwrite": "--overwrite"}
"""Keys of the app's configuration that a local run sets, and the options of the command that do so."""
COMPLETED = "finished:completed"
CAUSE = re.compile(r"fedtaco\.errors\.\w+: (.+)")
"""The last line of a traceback in the log of a server app, if fedtaco ended the run."""


def run_locally(
    app: Path,
    record: RunFolder,
    *,
    nodes: int,
    settings: Sequence[str] = (),
    overwrite: bool = False,
    on_line: Callable[[str], None],
) -> dict[str, Any]:
    """Run an app of ``fedtaco flower new`` on new SuperNodes on 127.0.0.1; all processes end with the run.

    Parameters
    ----------
    app
        Folder of the app.
    record
        Where the run is recorded.
    nodes
        Number of SuperNodes; node i gets ``partition-id`` i.
    settings
        Values that replace those in the app's ``[tool.flwr.app.config]``, such as ``"num-server-rounds=3"``.
    overwrite
        Whether to replace the run in the folder.
    on_line
        Called with each line of progress, and each line of the server app's log.

    Returns
    -------
    dict
        The summary of the run.

    Raises
    ------
    InvalidInput
        If the folder is not that of such an app, a value is not valid, or Flower is not installed.
    RunStopped
        If the run has failed.
    ProcessDied
        If the SuperLink or a SuperNode has ended before the run.
    """
    if not NODES.admits(nodes):
        raise InvalidInput(f"nodes is {nodes}; it must be {NODES.describe()}.")
    defaults = read_app_config(app)
    _require_unused(record, overwrite)
    config = parse_settings(settings, defaults)
    cause = ""

    def follow(line: str) -> None:
        nonlocal cause
        on_line(line)
        if found := CAUSE.match(line):
            cause = found[1]

    config |= {"checkpoint": str(record.path.absolute()), "min-available-nodes": nodes, "overwrite": overwrite}
    with TemporaryDirectory(prefix="fedtaco-flower-") as folder:
        on_line("Starting a SuperLink on 127.0.0.1, with a new certificate ...")
        with Loopback(Path(folder)) as federation:
            on_line(f"Starting {nodes} SuperNodes, each with a new key ...")
            federation.start_nodes(nodes)
            status = federation.follow_run(federation.run(app.absolute(), config), follow)
            if status != COMPLETED:
                _show_client_error(federation, on_line)
            on_line("Stopping the SuperNodes and the SuperLink ...")
    if status != COMPLETED:
        raise RunStopped(cause or f"The run has ended with the status {status}; its log says why.")
    summary = record.summary() if record.exists() else None
    if summary is None:
        raise InvalidInput(f"The app has not recorded a run in {record.path}; its server app must use FedStrategy.")
    return summary


def read_app_config(app: Path) -> dict[str, Any]:
    """Return ``[tool.flwr.app.config]`` of an app.

    Raises
    ------
    InvalidInput
        If it cannot be read, or lacks a key that :func:`run_locally` sets.
    """
    path = app / "pyproject.toml"
    if not path.is_file():
        raise InvalidInput(f"{app} has no pyproject.toml; name the folder of an app that 'fedtaco flower new' wrote.")
    with reading(path):
        config: dict[str, Any] = dict(tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"])
    for key in OPTIONS:
        if key not in config:
            raise InvalidInput(
                f"{path} has no '{key}' in [tool.flwr.app.config]; add it, and let the server app pass it to "
                "FedStrategy, as in an app that 'fedtaco flower new' writes."
            )
    return config


def parse_settings(texts: Sequence[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Parse settings of an app, written as for ``flwr run --run-config``; text needs no quotes.

    >>> parse_settings(["local-lr=0.1 method=scaffold"], {"local-lr": 0.05, "method": "taco"})
    {'local-lr': 0.1, 'method': 'scaffold'}
    """
    config = {}
    for text in texts:
        for pair in _split(text):
            key, equals, value = pair.partition("=")
            if not equals:
                raise InvalidInput(f"run-config is '{pair}'; write it as num-server-rounds=3.")
            if key in OPTIONS:
                raise InvalidInput(f"run-config sets {key}; use {OPTIONS[key]} instead.")
            if key not in defaults:
                raise unknown("setting of the app", key, defaults)
            config[key] = _parse_value(key, value, type(defaults[key]))
    return config


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidInput(f"run-config is '{text}': {error}.") from error


def _parse_value(key: str, text: str, kind: type) -> Any:
    """Return a value of the type that the setting has in the app."""
    if kind is str:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        value = text
    if type(value) is int and kind is float:
        return float(value)
    if type(value) is not kind:
        names = {int: "a whole number", float: "a number", bool: "true or false"}
        raise InvalidInput(f"{key} is '{text}'; it must be {names.get(kind, kind.__name__)}.")
    return value


def _show_client_error(federation: Loopback, on_line: Callable[[str], None]) -> None:
    """Show the end of the log of the first node whose client app raised an error."""
    for name in federation.node_ids:
        log = federation.processes.end_of_log(name, lines=40)
        if "Traceback" in log:
            on_line(f"The log of {name} ends with:")
            for line in log.splitlines():
                on_line(line)
            return


def _require_unused(folder: RunFolder, overwrite: bool) -> None:
    """Raise InvalidInput if the folder contains something other than a run that may be replaced."""
    if folder.exists() and not overwrite:
        raise InvalidInput(f"{folder.path} holds a run already; replace it (overwrite), or choose another (out).")
    folder.check_available({}, resume=False, overwrite=overwrite)
