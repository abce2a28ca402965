"""Whole runs under the guard: who is expelled, with which methods, and who is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput, Method
from fedtaco.methods import METHODS
from fedtaco.records import RunFolder


@pytest.mark.parametrize("partition", ["groups", "iid"])
@pytest.mark.parametrize(
    "behaviour", ["replay", "replay-scaled:-1", "replay-noise", "zero", "disguised", "random", "replay:late"]
)
def test_freeloaders_are_expelled_and_nobody_else(behaviour, partition, tmp_path):
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
    rides_from = 4 if behaviour.endswith("late") else 1
    for record in result.history.clients:
        if record.client in freeloaders and record.round >= rides_from:
            assert record.quantities["weight"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_guarded(method):
    settings = {"rounds": 6, "local_steps": 10, "detector": "guard", "participation": 0.7}
    honest = fedtaco.run(method, **settings)
    assert not any(record.decisions for record in honest.history)
    ridden = fedtaco.run(method, freeloaders=6, behaviour="replay-noise", **settings)
    assert {decision.test for record in ridden.history for decision in record.decisions} == {"zero", "content"}
    expelled = {record.client for record in ridden.history.clients if record.expelled}
    assert 4 <= len(expelled) <= 6


def test_a_method_whose_uploads_are_masked_is_refused():
    @dataclass(frozen=True)
    class Masked(Method):
        name = "masked"
        summary = "hides single uploads"
        inspectable = False

    clients = [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(3)]
    with pytest.raises(InvalidInput, match="No detector can judge the uploads of masked"):
        fedtaco.train(torch.nn.Linear(3, 2), clients, method=Masked(), rounds=1, local_steps=1, detector="guard")
