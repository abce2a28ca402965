"""A run that was broken off goes on to the same end, what nodes remember included."""

from __future__ import annotations

import pytest
import torch
from flwr.app import ArrayRecord, MetricRecord
from nodes import run, small_nodes, small_strategy
from safetensors.torch import load_file
from typer.testing import CliRunner

from fedtaco import InvalidInput, RunStopped
from fedtaco.cli.main import app as command_line
from fedtaco.flower.memory import InFolder
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder

ROUNDS = 5


class PowerCut(BaseException):
    """Ends a run between two instructions."""


def with_folders(tmp_path):
    return [{"partition-id": place, "memory-dir": str(tmp_path / f"memory{place}")} for place in range(5)]


def broken_off(method, nodes, out, at, after_replies, **options):
    """A run that ends in round ``at``, before or after the nodes have done their work of it."""

    def cut(node, reply):
        if reply.metadata.group_id == str(at) and (not after_replies or node == nodes.nodes[-1]):
            raise PowerCut
        return [reply]

    nodes.tamper = cut
    with pytest.raises(PowerCut):
        run(small_strategy(method, checkpoint=out, **options), nodes, ROUNDS)


def untimed(history):
    timed = {"seconds", "slowest_client_seconds", "wall_seconds"}
    rows = [*history.table(), *history.client_table()]
    return [{name: value for name, value in row.items() if name not in timed} for row in rows]


@pytest.mark.parametrize("method", METHODS)
def test_a_broken_run_ends_where_an_unbroken_one_does(method, tmp_path):
    whole = tmp_path / "whole"
    run(small_strategy(method, checkpoint=whole), small_nodes(), ROUNDS)
    out = tmp_path / "run"
    for at, after_replies in ((2, False), (4, True)):
        broken_off(method, small_nodes(configs=with_folders(tmp_path)), out, at, after_replies)
    nodes = small_nodes(configs=with_folders(tmp_path))
    run(small_strategy(method, checkpoint=out), nodes, ROUNDS)
    assert len(nodes.sent) == 5 * (ROUNDS - 3) * (2 if METHODS[method].surveys else 1)
    for name in ("model", "output"):
        ended, expected = load_file(RunFolder(out).model_path(name)), load_file(RunFolder(whole).model_path(name))
        assert all(torch.equal(ended[key], expected[key]) for key in expected)
    assert untimed(RunFolder(out).history()) == untimed(RunFolder(whole).history())


def test_a_part_of_the_nodes_and_expelled_ones_are_remembered(tmp_path):
    options = {"fraction_train": 0.6, "detector": "paper", "weighted_by_key": "num-examples"}
    whole, out = tmp_path / "whole", tmp_path / "run"
    run(small_strategy("scaffold-taco", checkpoint=whole, **options), small_nodes(), ROUNDS)
    nodes = small_nodes(configs=with_folders(tmp_path))
    nodes.tamper = lambda node, reply: _cut_in("4", reply)
    with pytest.raises(PowerCut):
        run(small_strategy("scaffold-taco", checkpoint=out, **options), nodes, ROUNDS)
    run(
        small_strategy("scaffold-taco", checkpoint=out, **options),
        small_nodes(configs=with_folders(tmp_path)),
        ROUNDS,
    )
    assert untimed(RunFolder(out).history()) == untimed(RunFolder(whole).history())
    assert load_file(out / "model.safetensors")["weight"].equal(load_file(whole / "model.safetensors")["weight"])


def _cut_in(group, reply):
    if reply.metadata.group_id == group:
        raise PowerCut
    return [reply]


def test_an_answer_that_was_not_used_is_not_remembered(tmp_path):
    """Scaffold's mean of c_i is c only if a node forgets what the server never had."""
    nodes, strategy = small_nodes(), small_strategy("scaffold")
    nodes.tamper = lambda node, reply: [] if node == 103 and reply.metadata.group_id in ("2", "3") else [reply]
    run(strategy, nodes, ROUNDS)
    variates = []
    for client, node in enumerate(nodes.nodes):
        state = nodes.contexts[node].state
        kept = f"fedtaco.memory.{strategy._run.members.answered[client]}"
        variates.append(torch.from_numpy(state[kept]["variate"].numpy()))
        assert len(state) <= 2
    mean = torch.stack(variates).mean(0)
    assert torch.allclose(mean, strategy._run.state.server.memory["variate"], atol=1e-12)


def test_a_lost_memory_is_told(tmp_path, caplog):
    out = tmp_path / "run"
    broken_off("scaffold", small_nodes(), out, 3, False)
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


def test_another_run_in_the_folder_is_refused(tmp_path):
    run(small_strategy("taco", checkpoint=tmp_path / "run"), small_nodes(), 2)
    with pytest.raises(InvalidInput, match="cannot be resumed as this one: method is 'taco' there and 'fedavg' here"):
        run(small_strategy("fedavg", checkpoint=tmp_path / "run"), small_nodes(), 2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(InvalidInput, match="is not a run folder"):
        run(small_strategy("taco", checkpoint=tmp_path / "other"), small_nodes(), 2)


def test_nodes_that_were_not_there_before_do_not_take_others_places(tmp_path):
    out = tmp_path / "run"
    broken_off("taco", small_nodes(), out, 2, False)
    nodes = small_nodes()
    nodes.connected = [901, 902, 903]
    with pytest.raises(RunStopped, match="have no part in this run"):
        run(small_strategy("taco", checkpoint=out), nodes, ROUNDS)
    assert "have no part" in RunFolder(out).summary()["stopped"]
    run(small_strategy("taco", checkpoint=out), small_nodes(), ROUNDS)
    assert RunFolder(out).summary()["stopped"] is None


def measured(number, arrays):
    assert isinstance(arrays, ArrayRecord)
    return MetricRecord({"accuracy": number / 10, "loss": 1.0 / (number + 1)})


@pytest.mark.parametrize("evaluate_fn", [measured, None])
def test_a_deployment_is_reported(evaluate_fn, tmp_path):
    nodes = small_nodes()
    nodes.tamper = lambda node, reply: [] if (node, reply.metadata.group_id) == (102, "2") else [reply]
    run(small_strategy("taco", checkpoint=tmp_path / "run", dataset="wards"), nodes, 3, evaluate_fn=evaluate_fn)
    history = RunFolder(tmp_path / "run").history()
    assert history.column("accuracy") == ([0.1, 0.2, 0.3] if evaluate_fn else [None] * 3)
    assert [len(record.dropped) for record in history] == [0, 1, 0]
    assert all(record.seconds is not None for record in history.clients if record.weight)
    done = CliRunner().invoke(command_line, ["report", str(tmp_path / "run")])
    assert done.exit_code == 0, (done.output, done.exception)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "wards" in page
    assert "no reply came within" in page


def test_a_file_of_memory_is_whole_or_not_there(tmp_path):
    keep = InFolder(tmp_path / "keep")
    for number in range(1, 5):
        keep.put(number, {"variate": torch.full((3,), float(number))}, beside=number - 1)
    assert sorted(path.name for path in (tmp_path / "keep").iterdir()) == ["3.safetensors", "4.safetensors"]
    assert keep.get(3)["variate"].tolist() == [3.0] * 3
    assert keep.get(2) is None
