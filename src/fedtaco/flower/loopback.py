"""A Flower federation on this machine: a SuperLink and SuperNodes on 127.0.0.1, with new certificates and keys."""

import json
import math
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from fedtaco.errors import InvalidInput, RunStopped
from fedtaco.flower.certificates import write_certificates, write_key
from fedtaco.flower.process_group import ProcessGroup, plain_line

PATIENCE = 150.0
"""Seconds to wait for the SuperLink to listen, and for SuperNodes to connect."""
PAUSE = 0.3
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


class Loopback:
    """A SuperLink with TLS, and the SuperNodes that are started; all processes end with the ``with`` block.

    Parameters
    ----------
    folder
        An empty folder for keys, certificates, logs and Flower's own files, which outlives the block.
    **environment
        Further environment variables for all processes.

    Examples
    --------
    ::

        with Loopback(folder) as federation:
            federation.start_nodes(3)
            status = federation.follow_run(federation.run(app, {"min-available-nodes": 3}), print)
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder, self.home, self.port = folder, folder / "home", free_port()
        self.processes = ProcessGroup(
            folder, {**ENVIRONMENT, **environment, "FLWR_HOME": str(self.home)}, mark="FLWR_HOME"
        )
        self.node_ids: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True)
        write_certificates(self.folder)
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "lab"\n\n[superlink.lab]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.folder}/ca.crt"\n',
            encoding="utf-8",
        )
        try:
            self.start_superlink()
        except BaseException:
            self.processes.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.processes.stop()

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it accepts connections.

        Raises
        ------
        InvalidInput
            If its port is taken, or Flower is not installed.
        """
        if is_open(self.port):
            raise InvalidInput(f"Port {self.port} of 127.0.0.1 is taken by another process; start again on a free one.")
        database = self.folder / "state.db"
        database.touch(mode=0o600)  # SQLite gives its other files the same mode
        self.processes.start(
            "superlink",
            "flower-superlink",
            *("--host", "127.0.0.1", "--port", str(self.port), "--database", str(database)),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *self._certificate(),
        )
        self._wait_until(lambda: is_open(self.port), "the SuperLink to listen")

    def register(self, name: str) -> None:
        """Create a node's key and register it with the SuperLink."""
        write_key(self.folder / name)
        answer = self.flwr("supernode", "register", str(self.folder / f"{name}.pub"), "lab")
        self.node_ids[name] = int(answer["node-id"])

    def start_node(self, name: str, config: str, *, with_certificate: bool = True) -> None:
        """Start a registered SuperNode.

        Parameters
        ----------
        name
            Name of the node, as in :meth:`register`.
        config
            Its ``--node-config``.
        with_certificate
            Whether it knows the certificate of the authority; without it, the node cannot connect.
        """
        authority = ("--root-certificates", str(self.folder / "ca.crt")) if with_certificate else ()
        self.processes.start(
            name,
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self.port}", *authority),
            *("--auth-supernode-private-key", str(self.folder / name)),
            *("--host", "127.0.0.1", "--port", str(free_port()), *self._certificate()),
            *("--node-config", config),
        )

    def start_nodes(self, count: int) -> None:
        """Register and start nodes, each with its own partition of the data and its own folder for memory."""
        for place in range(count):
            self.register(f"node{place}")
        for place in range(count):
            self.start_node(f"node{place}", self.node_config(place, count))

    def node_config(self, place: int, count: int) -> str:
        """Return the ``--node-config`` of a node."""
        return f'partition-id={place} num-partitions={count} memory-dir="{self.folder}/memory{place}"'

    def wait_for_nodes(self, count: int) -> None:
        """Wait until this many nodes are online."""
        self._wait_until(lambda: len(self.online()) >= count, f"{count} SuperNodes to connect")

    def online(self) -> list[int]:
        """Return the ids of the nodes that are online."""
        nodes = self.flwr("supernode", "list", "lab")["nodes"]
        return [int(node["node-id"]) for node in nodes if node["status"] == "online"]

    def run(self, app: Path, config: Mapping[str, Any]) -> int:
        """Start a run of an app; return the id of the run.

        Parameters
        ----------
        app
            Folder of the app.
        config
            Values that replace those in the app's ``[tool.flwr.app.config]``.

        Raises
        ------
        InvalidInput
            If Flower refuses the app or a value.
        """
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        return int(self.flwr("run", str(app), "lab", "--run-config", pairs)["run-id"])

    def status(self, run_id: int) -> str:
        """Return the status of a run, such as ``finished:completed``."""
        return str(self.flwr("ls", "lab", "--run-id", str(run_id))["runs"][0]["status"])

    def follow_run(self, run_id: int, on_line: Callable[[str], None], timeout: float = math.inf) -> str:
        """Pass the log of a run to ``on_line``, line by line, until the run has ended; return its status.

        Raises
        ------
        ProcessDied
            If the SuperLink or a SuperNode has ended.
        RunStopped
            If the run has not ended after ``timeout`` seconds.
        """
        deadline, name, unfinished = time.monotonic() + timeout, f"run-{run_id}", ""
        stream = self.processes.start(name, "flwr", "log", str(run_id), "lab", "--stream")
        del self.processes.started[name]  # it ends with the run
        with self.processes.log_of(name).open(encoding="utf-8", errors="replace") as log, stream:
            try:
                has_ended = False
                while not has_ended:
                    has_ended = stream.poll() is not None
                    *lines, unfinished = (unfinished + log.read()).split("\n")
                    for line in filter(None, map(plain_line, lines)):
                        on_line(line)
                    self._pause(deadline, f"run {run_id} to end")
            finally:
                stream.kill()
        while not (status := self.status(run_id)).startswith("finished"):
            self._pause(deadline, f"run {run_id} to end")
        return status

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a command of Flower's command line and return its JSON output.

        Raises
        ------
        InvalidInput
            If Flower refuses the command.
        ProcessDied
            If the SuperLink or a SuperNode has ended.
        """
        done = self.processes.call("flwr", *arguments, "--format", "json")
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            answer = {"success": False, "error-message": done.stdout + done.stderr}
        if not answer.get("success", True):
            self.processes.require_running()
            reason = str(answer.get("error-message")).strip().rpartition("\n\n")[2]
            raise InvalidInput(f"'flwr {arguments[0]}' has failed: {reason}")
        return answer

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            self._pause(deadline, what)

    def _pause(self, deadline: float, what: str) -> None:
        """Wait a moment; raise an error if a process has ended or the time is up."""
        self.processes.require_running()
        if time.monotonic() > deadline:
            log = self.processes.end_of_log("superlink")
            raise RunStopped(f"Waited too long for {what}. The end of the SuperLink's log: {log}")
        time.sleep(PAUSE)

    def _certificate(self) -> tuple[str, ...]:
        paths = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        return tuple(part for name, file in paths.items() for part in (f"--ssl-{name}", str(self.folder / file)))


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def is_open(port: int) -> bool:
    """Return whether a process listens on a port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0
