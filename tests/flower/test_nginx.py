"""The documented deployment: a SuperLink on loopback, behind an nginx that lets nodes through and nobody else.

Flower's control and runtime APIs do not ask who is calling, and share the port of the nodes' API.
"""

from __future__ import annotations

import json
import shutil
import ssl
from http.client import HTTPSConnection
from pathlib import Path

import light_task
import pytest
from nginx_lab import NginxLab
from typer.testing import CliRunner

from fedtaco.cli.main import app as command_line
from fedtaco.flower.certificates import write_certificates, write_key
from fedtaco.flower.loopback import ENVIRONMENT, free_port
from fedtaco.flower.process_group import ProcessGroup
from fedtaco.records import RunFolder

pytestmark = pytest.mark.deployment

CLIENT_APP = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from task import load_data, net

import fedtaco.flower

app = ClientApp()


@app.train()
def train(msg, context):
    place = context.node_config["partition-id"]
    if place == 1 and msg.content["config"]["server-round"] == 1:
        return Message(RecordDict({"junk": ConfigRecord({"junk": bytes(8_000_000)})}), reply_to=msg)
    return fedtaco.flower.train(net(), load_data(place, 2), msg, context)
"""
"""In the first round, the reply of node1 contains an object that is larger than nginx allows."""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Write the template app, with a lighter task and the client app above."""
    path = tmp_path_factory.mktemp("app") / "app"
    assert CliRunner().invoke(command_line, ["flower", "new", str(path)]).exit_code == 0
    shutil.copy(Path(light_task.__file__), path / "task.py")
    (path / "client_app.py").write_text(CLIENT_APP)
    return path


@pytest.fixture(scope="module")
def lab(tmp_path_factory, app):
    """Start a SuperLink, nginx and two nodes; no process is left afterwards.

    The model has 6 MB, so that honest uploads contain an object of 5 MiB, the largest into which Flower splits arrays.
    """
    folder, site = tmp_path_factory.mktemp("lab"), (app / "nginx.conf").read_text()
    with NginxLab(folder, site, FEDTACO_FAULTS=str(folder), FEDTACO_WIDTH="120000") as federation:
        federation.start_nodes(2)
        federation.wait_for_nodes(2)
        yield federation
    assert not federation.processes.alive()


@pytest.fixture
def stranger(lab, tmp_path):
    """Processes of somebody who knows the address and the certificate of the authority, which are public."""
    (tmp_path / "home").mkdir()
    shutil.copy(lab.folder / "ca.crt", tmp_path)
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink.lab]\naddress = "127.0.0.1:{lab.port}"\nroot-certificates = "{tmp_path}/ca.crt"\n'
    )
    processes = ProcessGroup(tmp_path, {**ENVIRONMENT, "FLWR_HOME": str(tmp_path / "home")}, mark="FLWR_HOME")
    yield processes
    processes.stop()


def request(lab, port, path, body=b"", **options):
    """Send a request as Flower's clients do; return the status."""
    connection = HTTPSConnection(
        "127.0.0.1", port, context=ssl.create_default_context(cafile=lab.folder / "ca.crt"), timeout=30
    )
    connection.request("POST", path, body, {"Content-Type": "application/protobuf"}, **options)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_stranger_can_neither_register_a_node_nor_start_a_run(lab, app, stranger):
    runs = lab.flwr("ls", "lab")["runs"]
    write_key(stranger.folder / "rogue")
    for command in (("supernode", "register", "rogue.pub"), ("run", str(app))):
        done = stranger.call("flwr", *command, "lab", "--format", "json")
        assert json.loads(done.stdout)["success"] is False, done.stdout
        assert "404" in done.stdout, done.stdout
    nodes = lab.flwr("supernode", "list", "lab")["nodes"]
    assert {int(node["node-id"]) for node in nodes} == set(lab.node_ids.values())
    assert len(lab.flwr("ls", "lab")["runs"]) == len(runs)


def test_a_node_that_registers_itself_is_refused(lab, stranger):
    own = stranger.folder / "own"
    own.mkdir()
    write_certificates(own)
    process = stranger.start(
        "rogue",
        "flower-supernode",
        *("--superlink", f"127.0.0.1:{lab.port}", "--root-certificates", "ca.crt"),
        *("--host", "127.0.0.1", "--port", str(free_port()), "--ssl-ca-certfile", str(own / "ca.crt")),
        *("--ssl-certfile", str(own / "server.crt"), "--ssl-keyfile", str(own / "server.key")),
    )
    assert process.wait(120) != 0
    assert "All SuperNodes must be registered via the CLI" in stranger.log_of("rogue").read_text()


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-nodes",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/list-nodes",
        "/v1/fleet/%2e%2e/control/list-nodes",
        "/v1/fleet/..%2fcontrol/list-nodes",
        "//v1//control/list-nodes",
        "https://127.0.0.1/v1/control/list-nodes",
        "/docs",
        "/openapi.json",
        "/health",
    ],
)
def test_nginx_refuses_everything_except_the_api_of_the_nodes(path, lab):
    assert request(lab, lab.port, path) == 404


def test_what_nginx_refuses_is_answered_by_the_superlink_itself(lab):
    assert request(lab, lab.control_port, "/v1/control/list-nodes") == 200
    assert request(lab, lab.control_port, "/v1/runtime/acquire-task") == 200
    assert request(lab, lab.port, "/v1/fleet/get-run") == 401
    assert request(lab, lab.port, "/v1/control/list-nodes/../../fleet/get-run") == 401


@pytest.mark.parametrize(("path", "limit"), [("push-object", 6 << 20), ("push-messages", 16 << 10)])
def test_a_request_beyond_the_limit_ends_at_nginx(path, limit, lab):
    url = f"/v1/fleet/{path}"
    assert request(lab, lab.port, url, bytes(limit)) < 413
    assert request(lab, lab.port, url, bytes(limit + 1)) == 413
    assert request(lab, lab.port, url, iter([bytes(limit), b"\0"]), encode_chunked=True) == 413


def test_nodes_train_through_nginx_and_a_reply_beyond_the_limit_ends_there(lab, app, tmp_path):
    settings = {"num-server-rounds": 2, "local-steps": 5, "checkpoint": str(tmp_path / "run")}
    run = lab.run(app, settings)
    assert lab.wait_for_run(run, timeout=150) == "finished:completed"
    client = int(lab.node_ids["node1"] > lab.node_ids["node0"])
    history = RunFolder(tmp_path / "run").history()
    assert [list(record.dropped) for record in history] == [[client], []]
    assert "Reply message objects are unavailable" in history[0].dropped[client]
    assert f"the reply of node {lab.node_ids['node1']} (client {client}) is dropped" in lab.run_log(run)
    assert "client intended to send too large body: 8000" in lab.nginx_errors()
    assert "413 Request Entity Too Large" in lab.processes.log_of("node1").read_text()


def test_the_database_and_the_keys_are_readable_by_their_owner_only(lab):
    names = {"state.db", "state.db-wal", "state.db-shm", "server.key", "node0", "node1"}
    assert {name: oct((lab.folder / name).stat().st_mode & 0o777) for name in names} == dict.fromkeys(names, "0o600")
