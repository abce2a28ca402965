"""The paper's detector: strikes for α ≥ κ, and the limit λ at which a client is expelled."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput, RunStopped
from fedtaco.methods import Broadcast, Constants, Uploads
from fedtaco.trust import DetectorInput, PaperDetector
from fedtaco.uploads import UploadedVectors

EQUAL = torch.ones(5, 3)
"""Five equal uploads, each with α = 0.8."""


def make_uploads(matrix):
    return Uploads(
        constants=Constants(clients=5, rounds=10, local_steps=1, local_lr=0.1),
        clients=torch.arange(len(matrix)),
        vectors=UploadedVectors({"update": matrix}),
        steps=torch.ones(len(matrix), dtype=torch.int64),
        shares=torch.full((len(matrix),), 1 / len(matrix)),
    )


def initial_memory():
    return PaperDetector().initial_memory(torch.zeros(3), Constants(5, 10, 1, 0.1))


def judge(detector, memory, matrix, *, partial=False):
    """Return the verdict of a detector on a round."""
    given = DetectorInput(
        broadcast=Broadcast(torch.zeros(matrix.shape[1])),
        cohort=torch.arange(len(matrix)),
        uploads=make_uploads(matrix),
        round=1,
        partial_participation=partial,
        expelled=torch.zeros(5, dtype=torch.bool),
    )
    return detector.judge(memory, given)


def test_client_is_expelled_at_lambda_strikes():
    detector, memory = PaperDetector(), initial_memory()
    verdict = judge(detector, memory, EQUAL)
    assert verdict.memory["strikes"].tolist() == [1] * 5
    assert verdict.expelled == []
    assert judge(detector, verdict.memory, EQUAL).expelled == [0, 1, 2, 3, 4]


def test_strike_requires_alpha_of_kappa():
    uploads = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    memory = judge(PaperDetector(kappa=0.7), initial_memory(), uploads).memory
    assert memory["strikes"].tolist() == [1, 1, 1, 1, 0]


def test_kappa_is_inclusive():
    alpha = float(make_uploads(EQUAL).geometry.alpha[0])
    assert judge(PaperDetector(kappa=alpha), initial_memory(), EQUAL).memory["strikes"].sum() == 5


def test_partial_participation_requires_three_strikes():
    detector, memory = PaperDetector(), initial_memory()
    for _ in range(2):
        verdict = judge(detector, memory, EQUAL, partial=True)
        memory = verdict.memory
    assert verdict.expelled == []
    assert judge(detector, memory, EQUAL, partial=True).expelled == [0, 1, 2, 3, 4]


def test_partial_participation_counts_strikes_per_round_taken_part_in():
    """Three strikes suffice in three rounds but not in twenty, since λ is a fifth of the rounds."""
    memory = {**initial_memory(), "strikes": torch.tensor([2] * 5), "seen": torch.tensor([2, 2, 2, 19, 19])}
    assert judge(PaperDetector(), memory, EQUAL, partial=True).expelled == [0, 1, 2]


def test_single_upload_gets_no_strike():
    memory = judge(PaperDetector(max_strikes=1), initial_memory(), EQUAL[:1]).memory
    assert memory["strikes"].sum() == 0
    assert memory["seen"].tolist() == [1, 0, 0, 0, 0]
    fedtaco.run("taco", clients=1, partition="iid", rounds=10, local_steps=1, detector="paper")


def test_cohort_of_all_clients_is_full_participation():
    settings = {"rounds": 10, "local_steps": 2, "partition": "iid", "parameters": {"paper.kappa": 0.3}}
    for participation in (1.0, 0.98):
        with pytest.raises(RunStopped) as stop:
            fedtaco.run("taco", detector="paper", participation=participation, **settings)
        assert len(stop.value.history) == 2


@pytest.mark.parametrize(("rounds", "limit"), [(50, 10), (12, 3), (1, 1)])
def test_default_limit_is_a_fifth_of_the_rounds(rounds, limit):
    assert PaperDetector().limit(Constants(5, rounds, 1, 0.1)) == limit


@pytest.mark.parametrize("parameters", [{"kappa": 0.0}, {"kappa": 1.1}, {"max_strikes": 0}, {"max_strikes": 1.5}])
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(InvalidInput, match=rf"paper\.{next(iter(parameters))} is"):
        PaperDetector(**parameters)
