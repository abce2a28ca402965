"""Behaviours: what misbehaving clients send, when, and how behaviours are specified."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from fedtaco import InvalidInput
from fedtaco.trust import AdversarialClients, Behaviour, parse_behaviour

START, PREVIOUS = torch.zeros(20_000), torch.full((20_000,), 0.5)
MEMORY = {"start": PREVIOUS, "first_move": torch.tensor([0.02])}
"""What a client remembers of an earlier round."""


def make_adversaries(spec):
    return AdversarialClients(frozenset({1, 3}), parse_behaviour(spec), seed=0)


def forge(spec, memory=MEMORY, round_number=4, client=1):
    return make_adversaries(spec).forge(client, round_number, START, memory)


@pytest.mark.parametrize(
    ("spec", "value"), [("replay", 0.5), ("replay-scaled:-1", -0.5), ("replay-scaled", 0.15), ("zero", 0.0)]
)
def test_uploads_without_noise(spec, value):
    torch.testing.assert_close(forge(spec), torch.full_like(START, value))


def test_replay_noise_adds_noise_of_a_fraction_of_the_length():
    noise = forge("replay-noise:0.1") - 0.5
    assert float(noise.mean()) == pytest.approx(0, abs=0.002)
    assert float(noise.norm() / PREVIOUS.norm()) == pytest.approx(0.1, rel=0.03)


def test_noise_of_disguised_freeloaders_decreases_over_rounds():
    """Fraboni et al.: deviation c σ / t, with σ the mean length of the first move, and t counted from round 2."""
    assert float(forge("disguised", round_number=2).std()) == pytest.approx(0.02, rel=0.03)
    assert float(forge("disguised:3", round_number=4).std()) == pytest.approx(3 * 0.02 / 3, rel=0.03)


def test_random_upload_is_uniform_and_as_long_as_the_last_move():
    upload = forge("random")
    assert float(upload.abs().max()) == pytest.approx(math.sqrt(3) * 0.5, rel=0.01)
    assert float(upload.norm() / PREVIOUS.norm()) == pytest.approx(1, rel=0.03)
    assert float(forge("random", memory={}).abs().max()) == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize("spec", ["replay", "replay-noise", "disguised", "zero"])
def test_first_upload_of_a_replaying_freeloader_is_zero(spec):
    assert forge(spec, memory={}, round_number=1).count_nonzero() == 0


def test_noise_depends_on_client_and_round():
    first, other_client = (forge("random", {}, client=client) for client in (1, 3))
    assert abs(float(torch.cosine_similarity(first, other_client, dim=0))) < 0.05
    assert abs(float(torch.cosine_similarity(first, forge("random", round_number=5), dim=0))) < 0.05
    assert torch.equal(first, forge("random", {}))


def test_attackers_change_the_update_they_trained():
    update, start = torch.linspace(-1, 1, 1000), torch.zeros(1000)
    assert torch.equal(make_adversaries("sign-flip").change_update(1, 1, start, {}, update), -update)
    noise = make_adversaries("gaussian:3").change_update(1, 1, start, {}, update)
    assert float(noise.norm() / update.norm()) == pytest.approx(3, rel=0.1)
    assert abs(float(torch.cosine_similarity(noise, update, dim=0))) < 0.1


@pytest.mark.parametrize(("when", "active"), [("late", [3, 4, 5, 6, 7]), ("intermittent", [2, 4, 6])])
def test_rounds_in_which_a_freeloader_freeloads(when, active):
    behaviour = parse_behaviour(f"replay:{when}")
    assert [number for number in range(1, 8) if behaviour.freeloads(number, rounds=7)] == active


@pytest.mark.parametrize(
    "spec", ["reply", "replay:0.3", "zero:late:late", "sign-flip:late", "replay:never", "random:nan", "replay:late:3"]
)
def test_invalid_behaviours_are_refused(spec):
    with pytest.raises(InvalidInput, match="behaviour"):
        parse_behaviour(spec)


def test_own_behaviour_by_its_import_path(tmp_path, monkeypatch):
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
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = parse_behaviour("own_behaviour:Ones:late")
    assert (own.name, own.when) == ("ones", "late")
    assert forge("own_behaviour:Ones").eq(1).all()
    assert not isinstance(parse_behaviour("sign-flip"), type(own))
    assert isinstance(own, Behaviour)
