"""Flower's deployment engine on loopback: TLS, nodes with keys, and faults that occur between real machines."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import light_task
import pytest
import torch
from lab import Lab
from safetensors.torch import load_file
from typer.testing import CliRunner

import fedtaco
from fedtaco.cli.main import app as command_line
from fedtaco.flower.certificates import write_key
from fedtaco.records import RunFolder

pytestmark = pytest.mark.deployment

NODES = 3
ALL = {f"node{place}": place for place in range(NODES)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def faults(folder):
    path = folder / "faults"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def lab(folder, faults):
    """Start a SuperLink and three nodes; no process is left afterwards."""
    with Lab(folder, FEDTACO_FAULTS=str(faults)) as federation:
        federation.start_nodes(NODES)
        federation.wait_for_nodes(NODES)
        yield federation
    assert not federation.processes.alive()


@pytest.fixture(scope="module")
def app(folder):
    """Write the template app, with a lighter task."""
    path = folder / "app"
    assert CliRunner().invoke(command_line, ["flower", "new", str(path)]).exit_code == 0
    shutil.copy(Path(light_task.__file__), path / "task.py")
    return path


@pytest.fixture(autouse=True)
def no_faults_left(lab, faults):
    """Repair after each test what it broke."""
    yield
    for path in faults.iterdir():
        path.unlink()
    if "superlink" not in lab.processes.started:
        lab.start_superlink()
    for name, place in ALL.items():
        if name not in lab.processes.started:
            lab.start_node(name, lab.node_config(place, NODES))


def start(lab, app, out, method="taco", rounds=3, nodes=2):
    return lab.run(
        app,
        {
            "method": method,
            "num-server-rounds": rounds,
            "local-steps": 5,
            "checkpoint": str(out),
            "min-available-nodes": nodes,
        },
    )


def wait_for(holds, timeout, what):
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"waited {timeout} seconds for {what}"
        time.sleep(0.2)


def rounds_of(out):
    path = out / "rounds.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def places(lab):
    """Return the partitions in the order of client numbers, which is that of node ids."""
    return [ALL[name] for name in sorted(ALL, key=lambda name: lab.node_ids[name])]


def assert_equals_simulation(lab, out, method, rounds):
    simulation = fedtaco.train(
        light_task.net(),
        [light_task.samples(place) for place in places(lab)],
        method=method,
        rounds=rounds,
        local_steps=5,
        batch_size=32,
        local_lr=0.05,
        engine="serial",
    )
    trained = load_file(out / "model.safetensors")
    for name, tensor in simulation.model.state_dict().items():
        assert torch.allclose(trained[name], tensor, rtol=0, atol=1e-6), name
    alphas = [record.quantities["alpha"] for record in RunFolder(out).history().clients]
    assert alphas == pytest.approx([record.quantities["alpha"] for record in simulation.history.clients], abs=1e-6)


def test_taco_across_three_nodes_ends_with_the_same_model_as_the_simulator(lab, app, tmp_path):
    run = start(lab, app, tmp_path / "run", nodes=NODES)
    assert lab.wait_for_run(run) == "finished:completed"
    assert_equals_simulation(lab, tmp_path / "run", "taco", 3)
    log = lab.run_log(run)
    assert "Weighting: uniform" in log
    assert "Round 3 of 3 is done: 3 replies used, accuracy" in log
    done = CliRunner().invoke(command_line, ["report", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "by node" in (tmp_path / "run" / "report.html").read_text()


def test_a_wrong_key_and_a_missing_certificate_are_refused(lab, folder):
    write_key(folder / "stranger")
    lab.start_node("stranger", lab.node_config(0, NODES))
    lab.register("doubter")
    lab.start_node("doubter", lab.node_config(0, NODES), with_certificate=False)
    for name, words in (("stranger", "Failed to activate SuperNode"), ("doubter", "CERTIFICATE_VERIFY_FAILED")):
        process = lab.processes.started.pop(name)
        wait_for(lambda process=process: process.poll() is not None, 120, f"{name} to give up")
        assert process.returncode != 0
        assert words in lab.processes.log_of(name).read_text(errors="replace")
    assert sorted(lab.online()) == sorted(lab.node_ids[name] for name in ALL)


def test_the_reply_of_a_client_that_raises_is_dropped(lab, app, faults, tmp_path):
    (faults / "raise-1").touch()
    run = start(lab, app, tmp_path / "run", rounds=2, nodes=NODES)
    assert lab.wait_for_run(run) == "finished:completed"
    client = places(lab).index(1)
    history = RunFolder(tmp_path / "run").history()
    for record in history:
        assert list(record.dropped) == [client]
        assert "The disk of partition 1 is on fire." in record.dropped[client]
    assert [record.quantities["weight"] > 0 for record in history.clients].count(True) == 4
    assert f"the reply of node {lab.node_ids['node1']} (client {client}) is dropped" in lab.run_log(run)


def test_a_node_killed_in_a_round_is_dropped_and_rejoins(lab, app, faults, tmp_path):
    out, client = tmp_path / "run", places(lab).index(2)
    (faults / "wait-2").touch()
    run = start(lab, app, out, rounds=4)
    wait_for((faults / "waiting-2").exists, 150, "node2 to start training")
    lab.kill("node2")
    wait_for(lambda: rounds_of(out) == 1, 150, "the first round to end without node2")
    (faults / "wait-2").unlink()
    (faults / "wait-0").touch()
    wait_for((faults / "waiting-0").exists, 150, "the next round to start")
    lab.start_node("node2", lab.node_config(2, NODES))
    lab.wait_for_nodes(NODES)
    (faults / "wait-0").unlink()
    assert lab.wait_for_run(run) == "finished:completed"
    history = RunFolder(out).history()
    assert list(history[0].dropped) == [client]
    last = [record.client for record in history.clients if record.round == 4 and record.quantities["weight"] > 0]
    assert last == [0, 1, 2]
    assert f"node {lab.node_ids['node2']} (client {client})" in lab.run_log(run)


def test_a_killed_superlink_is_restarted_and_the_run_resumed(lab, app, faults, tmp_path):
    out = tmp_path / "run"
    first = start(lab, app, out, method="scaffold", rounds=4, nodes=NODES)
    wait_for(lambda: rounds_of(out) >= 1, 150, "a finished round")
    (faults / "wait-0").touch()
    wait_for((faults / "waiting-0").exists, 150, "node0 to start training")
    lab.kill("superlink")
    (faults / "wait-0").unlink()
    done = rounds_of(out)
    assert 1 <= done < 4
    lab.start_superlink()
    lab.wait_for_nodes(NODES)
    second = start(lab, app, out, method="scaffold", rounds=4, nodes=NODES)
    assert lab.wait_for_run(second) == "finished:completed"
    assert lab.status(first) != "finished:completed"
    assert f"Continuing after round {done} of 4." in lab.run_log(second)
    assert_equals_simulation(lab, out, "scaffold", 4)
