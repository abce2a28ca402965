"""From ``fedtaco flower new`` to a finished run folder with the two commands of the documentation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_helpers import MAX_WAIT, terminate

from fedtaco.records import RunFolder

pytestmark = pytest.mark.deployment

FEDTACO = Path(sys.executable).with_name("fedtaco")


@pytest.fixture
def environment(tmp_path):
    """The environment of the commands; afterwards no process has it, and the folder for temporary files is empty."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    yield {**os.environ, "TMPDIR": str(temporary)}
    assert list(temporary.iterdir()) == []
    mark = f"TMPDIR={temporary}".encode()
    environments = Path("/proc").glob("[0-9]*/environ")
    assert not [path for path in environments if mark in read_if_possible(path).split(b"\0")]


def read_if_possible(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def call(*arguments, cwd, env):
    return subprocess.run(
        [FEDTACO, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=MAX_WAIT
    )


def test_a_new_app_runs_with_one_command(tmp_path, environment):
    assert call("flower", "new", "my-app", "--method", "scaffold", cwd=tmp_path, env=environment).returncode == 0
    settings = ("--nodes", "2", "--run-config", "num-server-rounds=1")
    done = call("flower", "run", ".", *settings, cwd=tmp_path / "my-app", env=environment)
    assert done.returncode == 0, done.stderr
    assert "Round 1 of 1 is done: 2 replies used" in done.stderr
    assert "Recorded in runs/my-app\nWrite a page about it: fedtaco report runs/my-app\n" in done.stdout
    folder = RunFolder(tmp_path / "my-app" / "runs" / "my-app")
    assert len(folder.history()) == 1
    assert (folder.config()["method"], folder.config()["clients"]) == ("scaffold", 2)
    assert folder.summary()["engine"] == "flower, on 2 nodes"


def test_a_run_that_trained_nothing_fails_with_its_cause(tmp_path, environment):
    """Flower's mod for local differential privacy cannot process the messages of FedStrategy."""
    assert call("flower", "new", "my-app", "--method", "fedavg", cwd=tmp_path, env=environment).returncode == 0
    client_app = tmp_path / "my-app" / "client_app.py"
    code = client_app.read_text().replace("ClientApp()", "ClientApp(mods=[LocalDpMod(1.0, 1.0, 10.0, 1e-5)])")
    client_app.write_text(
        code.replace("import fedtaco.flower", "import fedtaco.flower\nfrom flwr.clientapp.mod import LocalDpMod")
    )
    done = call("flower", "run", "my-app", "--nodes", "2", cwd=tmp_path, env=environment)
    assert done.returncode == 3, done.stderr
    last = done.stderr.splitlines()[-1]
    assert "(a mod of the client app refused the message: LocalDpMod expects exactly one ArrayRecord" in last
    summary = RunFolder(tmp_path / "runs" / "my-app").summary()
    assert summary["stopped"] in last


def test_sigterm_ends_all_processes(tmp_path, environment):
    assert call("flower", "new", "my-app", cwd=tmp_path, env=environment).returncode == 0
    command = [FEDTACO, "flower", "run", "my-app", "--nodes", "2"]
    temporary = tmp_path / "temporary"
    code, errors = terminate(command, lambda: list(temporary.glob("*/node0.log")), cwd=tmp_path, env=environment)
    assert code == 143
    assert errors.splitlines()[-1] == "Stopped."
    assert "Traceback" not in errors
