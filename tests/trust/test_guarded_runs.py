"""Whole runs with the guard: freeloaders are expelled, honest clients are not, with every method."""

from __future__ import annotations

import pytest

import fedtaco
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder


@pytest.mark.parametrize("partition", ["groups", "iid"])
@pytest.mark.parametrize(
    "behaviour", ["replay", "replay-scaled:-1", "replay-noise", "zero", "disguised", "random", "replay:late"]
)
def test_freeloaders_and_no_others_are_expelled(behaviour, partition, tmp_path):
    result = fedtaco.run(
        "taco",
        dataset="digits",
        partition=partition,
        rounds=10,
        local_steps=10,
        freeloaders=8,
        behaviour=behaviour,
        detector="guard",
        out=tmp_path / "run",
    )
    freeloaders = set(RunFolder(tmp_path / "run").partition().freeloaders)
    expelled = {record.client for record in result.history.clients if record.expelled}
    assert expelled == freeloaders
    first_round = 4 if behaviour.endswith("late") else 1
    for record in result.history.clients:
        if record.client in freeloaders and record.round >= first_round:
            assert record.quantities["weight"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_guard_works_with_every_method(method):
    participation = 1.0 if METHODS[method].needs_all_clients else 0.7
    settings = {"rounds": 6, "local_steps": 10, "detector": "guard", "participation": participation}
    honest = fedtaco.run(method, **settings)
    assert not any(record.decisions for record in honest.history)
    attacked = fedtaco.run(method, freeloaders=6, behaviour="replay-noise", **settings)
    assert {decision.test for record in attacked.history for decision in record.decisions} == {"zero", "content"}
    expelled = {record.client for record in attacked.history.clients if record.expelled}
    assert 4 <= len(expelled) <= 6


@pytest.mark.parametrize("compress", ["q8", "topk:0.1"])
def test_the_guard_judges_compressed_uploads_without_looking_for_copies(compress):
    """Noise makes copies look new, but the copies of several freeloaders still have nothing in common with others."""
    settings = {"rounds": 6, "local_steps": 10, "detector": "guard", "compress": compress}
    assert not any(record.decisions for record in fedtaco.run("taco", **settings).history)
    attacked = fedtaco.run("taco", freeloaders=4, behaviour="replay", **settings)
    tests = {one.test for record in attacked.history for one in record.decisions}
    assert tests == {"zero", "content" if compress == "q8" else "replica"}
    assert len({record.client for record in attacked.history.clients if record.expelled}) == 4
    sentence = f"because the noise of {compress} makes copies look new."
    assert any(sentence in note for note in attacked.summary["partition_notes"])
