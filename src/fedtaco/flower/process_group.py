"""Processes that belong together: each has a log file, and all of them are ended together."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fedtaco.errors import InvalidInput, ProcessDied
from fedtaco.processes import can_fork

BIN = Path(sys.executable).parent
"""Where commands are looked for first; then on PATH."""
GRACE = 5.0
"""Seconds that processes have to end after SIGTERM."""
PAUSE = 0.2
RUN_AS_CHILD = (
    "import os, sys; from fedtaco.processes import die_with; "
    "die_with(int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Python code that replaces its process by a command, which then ends with its parent."""


class ProcessGroup:
    """Processes that are started in one folder.

    Parameters
    ----------
    folder
        Working folder of all processes, with their log files.
    environment
        Environment variables that are added to those of this process. One of them, ``mark``, must be unique to this
        group: on Linux, descendants of the processes are recognised by it.
    mark
        Name of that variable.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], mark: str) -> None:
        self.folder = folder
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self.environment = {**os.environ, **environment, "PATH": path}
        self._mark = f"{mark}={environment[mark]}".encode()
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a process; on Linux, it ends with this one. Ctrl-C in a terminal does not reach it.

        Raises
        ------
        InvalidInput
            If there is no such command.
        """
        run_as_child = [sys.executable, "-c", RUN_AS_CHILD, str(os.getpid())] if can_fork() else []
        with self.log_of(name).open("ab") as log:
            process = subprocess.Popen(
                [*run_as_child, self.find(command), *arguments],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started[name] = process
        return process

    def call(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command and return its output."""
        return subprocess.run(
            [self.find(command), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def find(self, command: str) -> str:
        """Return the path of a command.

        Raises
        ------
        InvalidInput
            If it is neither beside the Python interpreter nor on PATH.
        """
        found = shutil.which(command, path=self.environment["PATH"])
        if found is None:
            raise InvalidInput(
                f"There is no command {command} in {BIN} or on PATH; install Flower: pip install 'fedtaco[flower]'."
            )
        return found

    def require_running(self) -> None:
        """Raise ProcessDied if one of the started processes has ended."""
        for name, process in self.started.items():
            if process.poll() is not None:
                raise ProcessDied(
                    f"The process {name} has ended with exit code {process.returncode}. The end of its log: "
                    f"{self.end_of_log(name)}"
                )

    def stop(self) -> None:
        """Terminate all processes; kill those that are left after ``GRACE`` seconds, or after a second Ctrl-C."""
        try:
            for process in self.started.values():
                process.terminate()
            deadline = time.monotonic() + GRACE
            while self.alive() and time.monotonic() < deadline:
                time.sleep(PAUSE)
        finally:
            while left := self.alive():
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(PAUSE / 10)
            self.started.clear()

    def alive(self) -> set[int]:
        """Return the ids of the running processes, on Linux with their descendants."""
        found = {process.pid for process in self.started.values() if process.poll() is None}
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if self._mark in entry.read_bytes().split(b"\0"):
                    found.add(int(entry.parent.name))
        return found

    def log_of(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.folder / f"{name}.log"

    def end_of_log(self, name: str, lines: int = 5) -> str:
        """Return the last lines of the log of a process."""
        written = self.log_of(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join([line for line in map(plain_line, written) if line][-lines:])


def plain_line(line: str) -> str:
    """Return a line of Flower's logs without colours, and without the level if it is INFO.

    >>> plain_line("\\x1b[92mINFO \\x1b[0m:      Round 1 of 3: 3 nodes train.")
    'Round 1 of 3: 3 nodes train.'
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
    return re.sub(r"^INFO *:\s*", "", text)
