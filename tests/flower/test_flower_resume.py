"""A run that was interrupted continues and ends as an uninterrupted one, including the memories of nodes."""

from __future__ import annotations

import pytest
import torch
from flwr.app import ArrayRecord, MetricRecord
from nodes import history_of, run, small_nodes, small_strategy
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedtaco import InvalidInput, RunStopped
from fedtaco.cli.main import app as command_line
from fedtaco.flower.memory_store import FolderStore
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder

ROUNDS = 5


class PowerCut(BaseException):
    """Interrupts a run at an arbitrary point."""


def memory_folders(tmp_path):
    """Return the configurations of nodes that keep their memories in folders."""
    return [{"partition-id": place, "memory-dir": str(tmp_path / f"memory{place}")} for place in range(5)]


def interrupt(method, nodes, out, at, after_replies, **options):
    """Interrupt a run in round ``at``, before or after the nodes have trained."""

    def cut(node, reply):
        if reply.metadata.group_id == str(at) and (not after_replies or node == nodes.nodes[-1]):
            raise PowerCut
        return [reply]

    nodes.tamper = cut
    with pytest.raises(PowerCut):
        run(small_strategy(method, checkpoint=out, **options), nodes, ROUNDS)


def without_times(history):
    timed = {"seconds", "slowest_client_seconds", "wall_seconds", "evaluation_seconds"}
    rows = [*history.table(), *history.client_table()]
    return [{name: value for name, value in row.items() if name not in timed} for row in rows]


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(method, tmp_path):
    whole = tmp_path / "whole"
    run(small_strategy(method, checkpoint=whole), small_nodes(), ROUNDS)
    out = tmp_path / "run"
    twice = method in ("taco", "scaffold", "mime")
    for at, after_replies in ((2, False), (4, True)) if twice else ((4, True),):
        interrupt(method, small_nodes(configs=memory_folders(tmp_path)), out, at, after_replies)
    nodes = small_nodes(configs=memory_folders(tmp_path))
    run(small_strategy(method, checkpoint=out), nodes, ROUNDS)
    assert len(nodes.sent) == 5 * (ROUNDS - 3) * (2 if METHODS[method].surveys else 1)
    for name in ("model", "output"):
        trained, expected = load_file(RunFolder(out).model_path(name)), load_file(RunFolder(whole).model_path(name))
        assert all(torch.equal(trained[key], expected[key]) for key in expected)
    assert without_times(RunFolder(out).history()) == without_times(RunFolder(whole).history())


def test_residuals_on_the_nodes_are_resumed(tmp_path):
    options = {"compress": "topk:0.2"}
    whole, out = tmp_path / "whole", tmp_path / "run"
    run(small_strategy("scaffold", checkpoint=whole, **options), small_nodes(), ROUNDS)
    for at, after_replies in ((2, False), (4, True)):
        interrupt("scaffold", small_nodes(configs=memory_folders(tmp_path)), out, at, after_replies, **options)
    run(small_strategy("scaffold", checkpoint=out, **options), small_nodes(configs=memory_folders(tmp_path)), ROUNDS)
    assert without_times(RunFolder(out).history()) == without_times(RunFolder(whole).history())


def test_partial_participation_and_expulsions_are_resumed(tmp_path):
    options = {"fraction_train": 0.6, "detector": "paper", "weighted_by_key": "num-examples"}
    whole, out = tmp_path / "whole", tmp_path / "run"
    run(small_strategy("scaffold-taco", checkpoint=whole, **options), small_nodes(), ROUNDS)
    interrupt("scaffold-taco", small_nodes(configs=memory_folders(tmp_path)), out, 4, False, **options)
    run(
        small_strategy("scaffold-taco", checkpoint=out, **options),
        small_nodes(configs=memory_folders(tmp_path)),
        ROUNDS,
    )
    assert without_times(RunFolder(out).history()) == without_times(RunFolder(whole).history())
    assert load_file(out / "model.safetensors")["weight"].equal(load_file(whole / "model.safetensors")["weight"])


def test_a_node_reverts_to_the_memory_of_its_last_used_reply():
    """Scaffold's c is the mean of all c_i only if a node discards a c_i that the server did not use."""
    nodes, strategy = small_nodes(), small_strategy("scaffold")
    nodes.tamper = lambda node, reply: [] if node == 103 and reply.metadata.group_id in ("2", "3") else [reply]
    run(strategy, nodes, ROUNDS)
    variates = []
    for client, node in enumerate(nodes.nodes):
        state = nodes.contexts[node].state
        key = f"fedtaco.memory.{strategy.node_clients.nodes.last_used[client]}"
        variates.append(torch.from_numpy(state[key]["variate"].numpy()))
        assert len(state) <= 2
    mean = torch.stack(variates).mean(0)
    assert torch.allclose(mean, strategy.recorder.state.server.memory["variate"], atol=1e-12)


def test_a_lost_memory_is_logged(tmp_path, caplog):
    out = tmp_path / "run"
    interrupt("scaffold", small_nodes(), out, 3, False)
    run(small_strategy("scaffold", checkpoint=out), small_nodes(), ROUNDS)
    lost = [line for line in caplog.messages if "has lost its memory of round 2" in line]
    assert len(lost) == 5
    assert "memory-dir" in lost[0]


def test_a_finished_run_is_only_read(tmp_path):
    out = tmp_path / "run"
    first = run(small_strategy("taco", checkpoint=out), small_nodes(), ROUNDS)
    nodes = small_nodes()
    second = run(small_strategy("taco", checkpoint=out), nodes, ROUNDS)
    assert nodes.sent == []
    assert second.arrays.to_torch_state_dict()["weight"].equal(first.arrays.to_torch_state_dict()["weight"])


def test_a_folder_of_another_run_is_refused(tmp_path):
    run(small_strategy("taco", checkpoint=tmp_path / "run"), small_nodes(), 2)
    with pytest.raises(InvalidInput, match="cannot be resumed as this one: method is 'taco' there and 'fedavg' here"):
        run(small_strategy("fedavg", checkpoint=tmp_path / "run"), small_nodes(), 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(InvalidInput, match="is not a run folder"):
        run(small_strategy("taco", checkpoint=tmp_path / "other"), small_nodes(), 2)


def test_overwrite_replaces_another_run(tmp_path):
    run(small_strategy("taco", checkpoint=tmp_path), small_nodes(), 2)
    three = small_nodes()
    three.connected = three.connected[:3]
    run(small_strategy("fedavg", checkpoint=tmp_path, overwrite=True), three, 1)
    config = RunFolder(tmp_path).config()
    assert (config["method"], config["clients"], len(RunFolder(tmp_path).history())) == ("fedavg", 3, 1)


def test_a_resumed_run_keeps_its_number_of_clients(tmp_path):
    out = tmp_path / "run"
    interrupt("taco", small_nodes(), out, 3, False)
    nodes, strategy = small_nodes(), small_strategy("taco", checkpoint=out)
    nodes.connected = nodes.nodes[:3]
    run(strategy, nodes, ROUNDS)
    assert [record.cohort for record in history_of(strategy)] == [5, 5, 3, 3, 3]


def test_new_nodes_do_not_replace_those_of_a_resumed_run(tmp_path):
    out = tmp_path / "run"
    interrupt("taco", small_nodes(), out, 2, False)
    nodes = small_nodes()
    nodes.connected = [901, 902, 903]
    with pytest.raises(RunStopped, match="do not belong to this run"):
        run(small_strategy("taco", checkpoint=out), nodes, ROUNDS)
    assert "do not belong" in RunFolder(out).summary()["stopped"]
    run(small_strategy("taco", checkpoint=out), small_nodes(), ROUNDS)
    assert RunFolder(out).summary()["stopped"] is None


def evaluate_centrally(number, arrays):
    assert isinstance(arrays, ArrayRecord)
    return MetricRecord({"accuracy": number / 10, "loss": 1.0 / (number + 1)})


@pytest.mark.parametrize("evaluate_fn", [evaluate_centrally, None])
def test_the_report_shows_a_deployment(evaluate_fn, tmp_path):
    nodes = small_nodes()
    nodes.tamper = lambda node, reply: [] if (node, reply.metadata.group_id) == (102, "2") else [reply]
    run(small_strategy("taco", checkpoint=tmp_path / "run", dataset="wards"), nodes, 3, evaluate_fn=evaluate_fn)
    history = RunFolder(tmp_path / "run").history()
    assert history.column("accuracy") == ([0.1, 0.2, 0.3] if evaluate_fn else [None] * 3)
    assert [len(record.dropped) for record in history] == [0, 1, 0]
    assert all(record.seconds is not None for record in history.clients if record.quantities["weight"])
    done = CliRunner().invoke(command_line, ["report", str(tmp_path / "run")])
    assert done.exit_code == 0, (done.output, done.exception)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "wards" in page
    assert "no reply came within" in page


def test_a_folder_store_keeps_two_memories(tmp_path):
    store = FolderStore(tmp_path / "memory")
    for number in range(1, 5):
        store.put(number, {"variate": torch.full((3,), float(number))}, keep=number - 1)
    assert sorted(path.name for path in (tmp_path / "memory").iterdir()) == ["3.safetensors", "4.safetensors"]
    like = {"variate": torch.zeros(3)}
    assert store.get(3, like)["variate"].tolist() == [3.0] * 3
    assert store.get(2, like) is None
