"""The federation of the deployment tests: its processes can be killed, and the logs of its runs are kept."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from fedtaco.flower.loopback import Loopback


class Lab(Loopback):
    def __init__(self, folder, **environment):
        super().__init__(folder, **environment)
        self.logs: dict[int, list[str]] = {}

    def wait_for_run(self, run_id, timeout=300):
        """Wait until a run has ended; return its status."""
        lines = self.logs[run_id] = []
        return self.follow_run(run_id, lines.append, timeout)

    def run_log(self, run_id):
        """Return the log of a run that has ended."""
        return "\n".join(self.logs[run_id])

    def kill(self, name):
        """Send SIGKILL to a process and its descendants."""
        process = self.processes.started.pop(name)
        for pid in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def descendants(pid):
    """Return the children of a process, their children, and so on."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    children = [other for other, parent in parents.items() if parent == pid]
    return [*children, *(further for child in children for further in descendants(child))]
