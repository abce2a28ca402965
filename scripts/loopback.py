"""A Flower federation on this machine: a SuperLink and SuperNodes on 127.0.0.1, with new certificates and keys.

``with Loopback(folder) as federation`` starts the SuperLink. When the block ends, all processes of the federation are
stopped.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

BIN = Path(sys.executable).parent
STATUS_EVERY = 20.0
"""Seconds between two requests for the status of a run."""
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


class Loopback:
    """A SuperLink with TLS, and the SuperNodes that are started.

    Parameters
    ----------
    folder
        Folder for keys, certificates, logs and Flower's own files.
    **environment
        Further environment variables for all processes.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.home = folder / "home"
        self.environment = {
            **os.environ,
            **ENVIRONMENT,
            **environment,
            "FLWR_HOME": str(self.home),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        self.node_ids: dict[str, int] = {}

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True)
        write_certificates(self.folder)
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "lab"\n\n[superlink.lab]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.folder}/ca.crt"\n'
        )
        try:
            self.start_superlink()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    # Processes

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it accepts connections."""
        self._start(
            "superlink",
            "flower-superlink",
            *("--host", "127.0.0.1", "--port", str(self.port), "--database", str(self.folder / "state.db")),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *self._certificate(),
        )

        def is_listening() -> bool:
            if self.processes["superlink"].poll() is not None:
                raise RuntimeError(f"The SuperLink has ended: {tail(self.log_of('superlink'))}")
            return is_open(self.port)

        wait_until(is_listening, 120, "the SuperLink to listen", self.log_of("superlink"))

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
        self._start(
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
        self.wait_for_nodes(count)

    def node_config(self, place: int, count: int) -> str:
        """Return the ``--node-config`` of a node."""
        return f'partition-id={place} num-partitions={count} memory-dir="{self.folder}/memory{place}"'

    def wait_for_nodes(self, count: int) -> None:
        """Wait until this many nodes are online."""
        wait_until(lambda: len(self.online()) >= count, 150, f"{count} nodes", self.log_of("superlink"))

    def online(self) -> list[int]:
        """Return the ids of the nodes that are online."""
        nodes = self.flwr("supernode", "list", "lab")["nodes"]
        return [int(node["node-id"]) for node in nodes if node["status"] == "online"]

    def kill(self, name: str) -> None:
        """Send SIGKILL to a process and its descendants."""
        process = self.processes.pop(name)
        for pid in [process.pid, *descendants(process.pid)]:
            send_signal(pid, signal.SIGKILL)
        process.wait()

    def stop_all(self) -> None:
        """Terminate all processes of this federation; kill those that are left after ten seconds."""
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.2)
        while left := self.alive():
            for pid in left:
                send_signal(pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.1)
        self.processes.clear()

    def alive(self) -> list[int]:
        """Return the ids of the processes of this federation, which have its folder in their environment."""
        own_home = f"FLWR_HOME={self.home}".encode()
        return [pid for pid in all_processes() if own_home in read_process_file(pid, "environ").split(b"\0")]

    def _reap(self) -> None:
        for process in self.processes.values():
            process.poll()

    def log_of(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.folder / f"{name}.log"

    # Runs

    def run(self, app: Path, **config: Any) -> int:
        """Start a run of an app with ``config`` as its run configuration; return the id of the run."""
        pairs = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in config.items())
        return int(self.flwr("run", str(app), "lab", "--run-config", pairs)["run-id"])

    def status(self, run_id: int) -> str:
        """Return the status of a run, such as ``finished:completed``."""
        return str(self.flwr("ls", "lab", "--run-id", str(run_id))["runs"][0]["status"])

    def wait_for_run(self, run_id: int, timeout: float, on_reply: Callable[[int], None] | None = None) -> str:
        """Wait until a run has ended; return its status.

        ``on_reply`` is called with the id of each node whose reply has arrived. A request for the status takes
        seconds, so the SuperLink's log is read in between.
        """
        deadline, next_status, reported = time.monotonic() + timeout, time.monotonic() + STATUS_EVERY, 0
        while True:
            log = self.log_of("superlink").read_text(errors="replace")
            replies = re.findall(r"Push replies from node_id=(\d+)", log)
            if on_reply is not None:
                for node in replies[reported:]:
                    on_reply(int(node))
            reported = len(replies)
            if re.search(rf"Finished task \d+ of run {run_id}", log) or time.monotonic() > next_status:
                next_status = time.monotonic() + STATUS_EVERY
                if (status := self.status(run_id)).startswith("finished"):
                    return status
            if time.monotonic() > deadline:
                raise TimeoutError(f"The run has not ended after {timeout} seconds: {self.run_log(run_id)}")
            time.sleep(0.5)

    def run_log(self, run_id: int) -> str:
        """Return the log of the server app in a run."""
        return self._flwr("log", str(run_id), "lab", "--show").stdout

    def flwr(self, *arguments: str) -> dict[str, Any]:
        """Run a command of Flower's command line and return its JSON output."""
        done = self._flwr(*arguments, "--format", "json")
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            raise RuntimeError(f"flwr {' '.join(arguments)}: {done.stdout}{done.stderr}") from None
        if not answer.get("success", True):
            raise RuntimeError(f"flwr {' '.join(arguments)}: {done.stdout}")
        return answer

    def _flwr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "flwr", *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def _start(self, name: str, command: str, *arguments: str) -> None:
        with self.log_of(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [BIN / command, *arguments],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _certificate(self) -> tuple[str, ...]:
        paths = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}
        return tuple(part for name, file in paths.items() for part in (f"--ssl-{name}", str(self.folder / file)))


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def is_open(port: int) -> bool:
    """Return whether a process listens on a port."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def all_processes() -> list[int]:
    """Return the ids of all processes on this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def read_process_file(pid: int, file: str) -> bytes:
    """Read a file of ``/proc``; return nothing if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    parents = {other: read_process_file(other, "stat").rpartition(b")")[2].split()[1:2] for other in all_processes()}
    children = [other for other, parent in parents.items() if parent == [str(pid).encode()]]
    return [*children, *(further for child in children for further in descendants(child))]


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(holds: Callable[[], bool], timeout: float, what: str, log: Path) -> None:
    """Wait until a condition holds; raise TimeoutError with the end of the log if it does not hold in time."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {timeout} seconds for {what}: {tail(log)}")
        time.sleep(0.5)


def tail(log: Path) -> str:
    """Return the last lines of a log file."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def write_certificates(folder: Path) -> None:
    """Write the certificate of a new authority, and a key with a certificate that it signed for 127.0.0.1."""
    authority_key, key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _certificate(authority_key, "fedtaco loopback authority", authority_key, None)
    certificate = _certificate(key, "127.0.0.1", authority_key, authority.subject)
    (folder / "ca.crt").write_bytes(authority.public_bytes(Encoding.PEM))
    (folder / "server.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    write_secret(folder / "server.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _certificate(
    key: ec.EllipticCurvePrivateKey, name: str, signer: ec.EllipticCurvePrivateKey, issuer: x509.Name | None
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def write_key(path: Path) -> None:
    """Write a node's key pair in OpenSSH's format."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(content)
