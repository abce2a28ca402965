"""Behaviours: what misbehaving clients send and remember, who is chosen, and that every engine agrees."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sketches import SKETCHES

import fedtaco
from fedtaco import InvalidInput
from fedtaco.experiment import RunOptions
from fedtaco.experiment.config import resolve_config
from fedtaco.experiment.prepared import PreparedRun
from fedtaco.methods import METHODS
from fedtaco.testing import CLIENTS, make_simulator
from fedtaco.trust import AdversarialClients, Behaviour, choose_clients, parse_behaviour

START, PREVIOUS = torch.zeros(20_000), torch.full((20_000,), 0.5)


def adversaries(text, clients=(1, 3)):
    return AdversarialClients(frozenset(clients), parse_behaviour(text), seed=0)


def forged(text, memory=None, round_number=4):
    seen = {"start": PREVIOUS, "first_move": torch.tensor([0.02])} if memory is None else memory
    return adversaries(text).forge(1, round_number, START, seen)


@pytest.mark.parametrize(
    ("text", "upload"), [("replay", 0.5), ("replay-scaled:-1", -0.5), ("replay-scaled", 0.15), ("zero", 0.0)]
)
def test_what_is_sent_without_noise(text, upload):
    torch.testing.assert_close(forged(text), torch.full_like(START, upload))


def test_replay_noise_is_a_copy_and_noise_of_a_part_of_its_length():
    noise = forged("replay-noise:0.1") - 0.5
    assert float(noise.mean()) == pytest.approx(0, abs=0.002)
    assert float(noise.norm() / PREVIOUS.norm()) == pytest.approx(0.1, rel=0.03)


def test_disguised_noise_fades_with_the_rounds():
    """Fraboni et al.: deviation c σ / t, σ the mean length of the first move, t counted from the second round."""
    assert float(forged("disguised", round_number=2).std()) == pytest.approx(0.02, rel=0.03)
    assert float(forged("disguised:3", round_number=4).std()) == pytest.approx(3 * 0.02 / 3, rel=0.03)


def test_random_is_even_and_as_long_as_the_last_move():
    sent = forged("random")
    assert float(sent.abs().max()) == pytest.approx(math.sqrt(3) * 0.5, rel=0.01)
    assert float(sent.norm() / PREVIOUS.norm()) == pytest.approx(1, rel=0.03)
    assert float(forged("random", memory={}).abs().max()) == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize("text", ["replay", "replay-noise", "disguised", "zero"])
def test_nothing_can_be_replayed_in_the_first_round(text):
    assert forged(text, memory={}, round_number=1).count_nonzero() == 0


def test_noise_is_fresh_for_each_client_and_round():
    one, two = (adversaries("random").forge(client, 4, START, {}) for client in (1, 3))
    assert abs(float(torch.cosine_similarity(one, two, dim=0))) < 0.05
    assert abs(float(torch.cosine_similarity(one, forged("random", round_number=5), dim=0))) < 0.05
    assert torch.equal(one, adversaries("random").forge(1, 4, START, {}))


def test_the_first_move_is_remembered_for_good():
    own = adversaries("disguised")
    memory = {}
    for start in (torch.zeros(4), torch.tensor([1.0, -1.0, 3.0, -3.0]), torch.full((4,), 100.0)):
        memory = own.remember(start, memory)
    assert memory["first_move"].tolist() == [2.0]
    assert torch.equal(memory["start"], torch.full((4,), 100.0))


def test_attackers_change_what_they_trained():
    update = torch.linspace(-1, 1, 1000)
    start = torch.zeros(1000)
    assert torch.equal(adversaries("sign-flip").change_update(1, 1, start, {}, update), -update)
    noise = adversaries("gaussian:3").change_update(1, 1, start, {}, update)
    assert float(noise.norm() / update.norm()) == pytest.approx(3, rel=0.1)
    assert abs(float(torch.cosine_similarity(noise, update, dim=0))) < 0.1


@pytest.mark.parametrize(("when", "active"), [("late", [3, 4, 5, 6, 7]), ("intermittent", [2, 4, 6])])
def test_when_a_freeloader_freeloads(when, active):
    behaviour = parse_behaviour(f"replay:{when}")
    assert [number for number in range(1, 8) if behaviour.freeloads(number, rounds=7)] == active


@pytest.mark.parametrize(
    "wrong", ["reply", "replay:0.3", "zero:late:late", "sign-flip:late", "replay:never", "random:nan", "replay:late:3"]
)
def test_what_is_not_a_behaviour_is_refused(wrong):
    with pytest.raises(InvalidInput, match="behaviour"):
        parse_behaviour(wrong)


@given(st.lists(st.sampled_from("ABC"), min_size=1, max_size=40), st.data())
def test_every_group_gives_its_share(groups, data):
    count = data.draw(st.integers(1, len(groups)))
    chosen = choose_clients(count, groups, seed=data.draw(st.integers(0, 99)))
    assert len(set(chosen)) == count
    for group in set(groups):
        share = groups.count(group) * count / len(groups)
        assert math.floor(share) <= sum(groups[client] == group for client in chosen) <= math.ceil(share)


def test_every_client_may_be_chosen():
    drawn = [choose_clients(2, ["A"] * 3 + ["B"] * 3, seed)[0] for seed in range(200)]
    drawn += [choose_clients(2, ["A"] * 3 + ["B"] * 3, seed)[1] for seed in range(200)]
    assert min(np.bincount(drawn, minlength=6)) > 40


# In a simulation

ALL = [*(kind() for kind in METHODS.values()), *SKETCHES]


def simulator_of(method, text, clients=(1, 3)):
    return make_simulator(method, adversaries=adversaries(text, clients))


@pytest.mark.parametrize("method", ALL, ids=lambda method: method.name)
def test_freeloaders_work_with_every_method(method):
    """They send the difference of their last two starting points, and zeros in all else."""
    simulator = simulator_of(method, "replay")
    engine, starts, uploads = simulator.adversaries, [], []

    class Spy:
        def run(self, method, instructions, jobs, memories):
            results, remembered = engine.run(method, instructions, jobs, memories)
            if instructions.phase == "train":
                starts.append(instructions.broadcast.start.clone())
                uploads.append({name: rows.clone() for name, rows in results.vectors.items()})
            return results, remembered

    simulator.adversaries = Spy()
    outcomes = list(simulator.rounds(simulator.initial_state()))
    for number, sent in enumerate(uploads):
        expected = starts[number - 1] - starts[number] if number else torch.zeros_like(starts[0])
        for name, rows in sent.items():
            for client in (1, 3):
                assert torch.equal(rows[client], expected if name == "update" else torch.zeros_like(rows[client]))
            assert name != "update" or rows[0].count_nonzero()
    assert torch.isfinite(outcomes[-1].state.server.weights).all()
    assert all(record.seconds is None for outcome in outcomes for record in outcome.clients if record.client in (1, 3))


def test_a_cohort_of_freeloaders_alone_moves_nothing():
    simulator = simulator_of(METHODS["scaffold"](), "zero", clients=range(CLIENTS))
    start = simulator.initial_state()
    end = list(simulator.rounds(start))[-1].state
    assert torch.equal(start.server.weights, end.server.weights)


SETTINGS = {"dataset": "digits", "clients": 8, "rounds": 6, "local_steps": 4, "freeloaders": 3}


@pytest.mark.parametrize("behaviour", ["replay-noise", "disguised:late", "random:intermittent", "gaussian"])
def test_engines_agree_about_misbehaving_clients(behaviour):
    serial, pool, batched = (
        fedtaco.run(
            "scaffold", behaviour=behaviour, engine=engine, workers=None if engine == "serial" else 2, **SETTINGS
        )
        for engine in ("serial", "pool", "batched")
    )
    for name, tensor in serial.model.state_dict().items():
        assert torch.equal(pool.model.state_dict()[name], tensor)
        torch.testing.assert_close(batched.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("detector", ["off", "paper", "guard"])
def test_a_run_with_freeloaders_is_resumed_to_the_same_end(detector, tmp_path):
    settings = {**SETTINGS, "behaviour": "disguised:intermittent", "detector": detector, "participation": 0.75}
    whole = fedtaco.run("scaffold-taco", **settings)

    def stop(record):
        if record.round == 3:
            raise Stopped

    with pytest.raises(Stopped):
        fedtaco.run("scaffold-taco", out=tmp_path / "run", on_round=stop, **settings)
    resumed = fedtaco.run("scaffold-taco", out=tmp_path / "run", resume=True, **settings)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], tensor)
    assert [record.decisions for record in resumed.history] == [record.decisions for record in whole.history]


def test_the_data_of_a_client_that_never_trains_is_withheld():
    """Neither its labels nor its held-out samples matter; those of a late freeloader do."""
    for behaviour, matters in (("replay", False), ("replay:late", True), ("label-flip", True)):
        config = resolve_config(method="fedavg", behaviour=behaviour, validation=0.2, **SETTINGS)
        weights = []
        for spoilt in (False, True):
            prepared = PreparedRun.prepare(config, RunOptions())
            if spoilt:
                for client in prepared.partition.freeloaders:
                    samples = prepared.simulator.clients[client]
                    prepared.simulator.clients[client] = type(samples)(
                        samples.x, samples.y * 0, samples.prepare, samples.chosen
                    )
            weights.append(list(prepared.simulator.rounds(prepared.simulator.initial_state()))[-1].state.server.weights)
        assert torch.equal(*weights) is not matters
        held_out = len(prepared.simulator.validation)
        everybody = len(
            PreparedRun.prepare(
                resolve_config(method="fedavg", validation=0.2, clients=8), RunOptions()
            ).simulator.validation
        )
        assert (held_out == everybody) is matters


def test_flipped_labels_are_the_mirrored_ones():
    flipped, plain = (
        PreparedRun.prepare(resolve_config(method="fedavg", clients=8, **more), RunOptions())
        for more in ({"freeloaders": 3, "behaviour": "label-flip"}, {})
    )
    for client in range(8):
        wrong, right = flipped.simulator.clients[client].labels(), plain.simulator.clients[client].labels()
        assert torch.equal(wrong, 9 - right if client in flipped.partition.freeloaders else right)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"freeloaders": 9}, "only 8 clients"),
        ({"freeloaders": -1}, "freeloaders is -1"),
        ({"freeloaders": 0, "behaviour": "replay"}, "changes nothing without freeloaders"),
        ({"freeloaders": 8}, "nobody would train"),
        ({"freeloaders": 2, "behaviour": "sleep"}, "There is no behaviour 'sleep'"),
    ],
)
def test_impossible_settings_are_refused(settings, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        fedtaco.run("fedavg", **{**SETTINGS, **settings})


def test_a_behaviour_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "own_behaviour.py").write_text(
        "from dataclasses import dataclass\n"
        "from fedtaco.trust.behaviours import Freeloader\n"
        "@dataclass(frozen=True)\n"
        "class Ones(Freeloader):\n"
        "    name, summary = 'ones', 'sends ones'\n"
        "    def forge(self, view):\n"
        "        return view.start * 0 + 1\n"
    )
    monkeypatch.chdir(tmp_path)
    own = parse_behaviour("own_behaviour:Ones:late")
    assert (own.name, own.when) == ("ones", "late")
    assert forged("own_behaviour:Ones").eq(1).all()
    assert not isinstance(parse_behaviour("sign-flip"), type(own))
    assert isinstance(own, Behaviour)


def test_adversaries_leave_the_methods_memory_alone():
    """What simulated freeloaders remember is no part of what the server knows of its clients."""
    simulator = simulator_of(METHODS["scaffold"](), "replay:late")
    for finished in simulator.rounds(simulator.initial_state()):
        assert all(set(memory) == {"variate"} for memory in finished.state.memories.values())
        assert set(finished.state.adversary_memories) == {1, 3}
