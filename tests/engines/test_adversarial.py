"""Misbehaving clients in whole runs: every method and engine, and memories that stay apart."""

from __future__ import annotations

import pytest
import torch
from run_helpers import Interrupted, assert_same_model, interrupt_after

import fedtaco
from fedtaco.methods import METHODS, Scaffold
from fedtaco.testing import CLIENTS, make_federation
from fedtaco.trust import AdversarialClients, parse_behaviour

FREELOADERS = (1, 3)
SETTINGS = {"dataset": "digits", "clients": 8, "rounds": 6, "local_steps": 4, "freeloaders": 3}


def federation_with(spec, method, clients=FREELOADERS):
    """Return a small federation in which some clients misbehave."""
    return make_federation(method, adversaries=AdversarialClients(frozenset(clients), parse_behaviour(spec), seed=0))


@pytest.mark.parametrize("method", [cls() for cls in METHODS.values()], ids=lambda method: method.name)
def test_freeloaders_upload_the_last_move_and_zeros(method):
    """The update is the difference of the last two starting points; whatever else the method uploads is zero."""
    federation = federation_with("replay", method)
    engine, starts, uploads = federation.clients.adversaries, [], []

    class RecordingEngine:
        def run(self, method, instructions, jobs, memories):
            results = engine.run(method, instructions, jobs, memories)
            if instructions.phase == "train":
                starts.append(instructions.broadcast.start.clone())
                uploads.append({name: rows.clone() for name, rows in results.vectors.items()})
            return results

    federation.clients.adversaries = RecordingEngine()
    rounds = list(federation.rounds(federation.initial))
    assert len(uploads) == len(rounds)
    for number, vectors in enumerate(uploads):
        last_move = starts[number - 1] - starts[number] if number else torch.zeros_like(starts[0])
        for name, rows in vectors.items():
            for client in FREELOADERS:
                assert torch.equal(rows[client], last_move if name == "update" else torch.zeros_like(rows[client]))
            assert name != "update" or rows[0].count_nonzero()
    assert torch.isfinite(rounds[-1].state.server.weights).all()
    records = [record for finished in rounds for record in finished.clients]
    assert {record.seconds for record in records if record.client in FREELOADERS} == {None}
    losses = {(record.client in FREELOADERS, record.quantities["training_loss"] is None) for record in records}
    assert losses == {(True, True), (False, False)}


def test_cohort_of_freeloaders_alone_does_not_move_the_model():
    federation = federation_with("zero", Scaffold(), clients=range(CLIENTS))
    start = federation.initial
    end = list(federation.rounds(start))[-1].state
    assert torch.equal(start.server.weights, end.server.weights)


def test_memories_of_adversaries_are_separate_from_those_of_the_method():
    """A real server would not know what freeloaders remember."""
    federation = federation_with("replay:late", Scaffold())
    for finished in federation.rounds(federation.initial):
        assert all(set(memory) == {"variate"} for memory in finished.state.memories.values())
        assert set(finished.state.adversary_memories) == set(FREELOADERS)


@pytest.mark.parametrize("behaviour", ["replay-noise", "disguised:late", "random:intermittent", "gaussian"])
def test_engines_agree_about_misbehaving_clients(behaviour):
    serial, pool, batched = (
        fedtaco.run(
            "scaffold", behaviour=behaviour, engine=engine, workers=None if engine == "serial" else 2, **SETTINGS
        )
        for engine in ("serial", "pool", "batched")
    )
    assert_same_model(serial.model, pool.model)
    for name, tensor in serial.model.state_dict().items():
        torch.testing.assert_close(batched.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("detector", ["off", "paper", "guard"])
def test_resumed_run_with_freeloaders_equals_an_uninterrupted_one(detector, tmp_path):
    settings = {**SETTINGS, "behaviour": "disguised:intermittent", "detector": detector, "participation": 0.75}
    expected = fedtaco.run("scaffold-taco", **settings)
    with pytest.raises(Interrupted):
        fedtaco.run("scaffold-taco", out=tmp_path / "run", callbacks=[interrupt_after(3)], **settings)
    resumed = fedtaco.run("scaffold-taco", out=tmp_path / "run", resume=True, **settings)
    assert_same_model(expected.model, resumed.model)
    assert [record.decisions for record in resumed.history] == [record.decisions for record in expected.history]
