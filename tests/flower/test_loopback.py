"""The federation on loopback, with scripts in place of Flower's commands; test_deployment.py uses the real ones."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from fedtaco import InvalidInput, RunStopped
from fedtaco.errors import ProcessDied
from fedtaco.flower import loopback, process_group
from fedtaco.flower.loopback import Loopback

LISTEN = """
import socket, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
server = socket.create_server(("127.0.0.1", port))
time.sleep(60)
"""
WAIT = "import time; time.sleep(60)"
FLWR = """
import json, sys, time
command = sys.argv[1]
if command == "log":
    print("\\x1b[92mINFO \\x1b[0m:      Round 1 of 2", end="", flush=True)
    time.sleep(1)
    print(": 2 nodes train.\\n\\nWARNING :   A reply is dropped.", flush=True)
    sys.exit()
answers = {
    "supernode": {"node-id": "5", "nodes": [{"node-id": "5", "status": "online"}]},
    "run": {"success": True, "run-id": "12"},
    "ls": {"runs": [{"status": "finished:completed"}]},
}
print(json.dumps(answers[command]))
"""


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Return a function that writes a command, which comes before those of Flower."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(process_group, "BIN", folder)

    def write(name, code):
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(0o755)

    write("flower-superlink", LISTEN)
    write("flower-supernode", WAIT)
    write("flwr", FLWR)
    return write


@pytest.fixture
def federation(commands, tmp_path):
    with Loopback(tmp_path / "lab") as federation:
        yield federation
    assert not federation.processes.alive()


def test_the_log_of_a_run_is_passed_on_line_by_line(federation, tmp_path):
    lines = []
    federation.start_nodes(2)
    assert federation.node_ids == {"node0": 5, "node1": 5}
    run = federation.run(tmp_path, {"local-lr": 0.1})
    assert run == 12
    assert federation.follow_run(run, lines.append) == "finished:completed"
    assert lines == ["Round 1 of 2: 2 nodes train.", "WARNING :   A reply is dropped."]


def test_the_database_is_readable_by_its_owner_only(federation):
    assert (federation.folder / "state.db").stat().st_mode & 0o777 == 0o600


def test_a_node_that_dies_ends_the_wait_for_a_run(commands, federation):
    commands("flower-supernode", "import sys; sys.exit('The key is not registered.')")
    federation.start_nodes(1)
    with pytest.raises(ProcessDied, match=r"process node0 has ended with exit code 1.*key is not registered"):
        federation.follow_run(12, print)


def test_a_run_that_takes_too_long_is_reported(commands, federation):
    commands("flwr", WAIT)
    with pytest.raises(RunStopped, match="Waited too long for run 12 to end"):
        federation.follow_run(12, print, timeout=0.1)


def test_nodes_that_never_connect_are_reported(federation, monkeypatch):
    federation.wait_for_nodes(1)
    monkeypatch.setattr(loopback, "PATIENCE", 0.1)
    with pytest.raises(RunStopped, match="Waited too long for 2 SuperNodes to connect"):
        federation.wait_for_nodes(2)


def test_what_flower_refuses_is_explained_in_a_sentence(commands, federation, tmp_path):
    answer = {"success": False, "error-message": "Using SuperLink: lab\n\n[code: 15] Invalid run configuration."}
    commands("flwr", f"print({json.dumps(answer)!r})")
    with pytest.raises(InvalidInput, match=r"^'flwr run' has failed: \[code: 15\] Invalid run configuration\.$"):
        federation.run(tmp_path, {})
    commands("flwr", "raise SystemExit('no such option')")
    with pytest.raises(InvalidInput, match=r"^'flwr run' has failed: no such option$"):
        federation.run(tmp_path, {})


def test_a_superlink_that_dies_is_reported_and_nothing_is_left(commands, tmp_path):
    commands("flower-superlink", "raise SystemExit('Address already in use')")
    federation = Loopback(tmp_path / "lab")
    with pytest.raises(ProcessDied, match=r"process superlink has ended.*Address already in use"), federation:
        pass
    assert not federation.processes.alive()


def test_a_taken_port_is_reported(commands, tmp_path):
    federation = Loopback(tmp_path / "lab")
    with (
        socket.create_server(("127.0.0.1", federation.port)),
        pytest.raises(InvalidInput, match=f"Port {federation.port} of 127.0.0.1 is taken"),
        federation,
    ):
        pass
