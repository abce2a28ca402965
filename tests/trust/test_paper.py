"""The paper's detector: strikes, limits, and what happens to clients that are expelled."""

from __future__ import annotations

import pytest
import torch

import fedtaco
from fedtaco import InvalidInput, RunStopped
from fedtaco.methods import Broadcast, Constants, Expulsion, ServerState, Taco, Uploads
from fedtaco.trust import DetectorInput, PaperDetector, finite_rows

ALIKE = torch.ones(5, 3)
"""Five equal uploads: α = 0.8 for each."""


def uploads(matrix, clients=None, rounds=10):
    return Uploads(
        constants=Constants(clients=5, rounds=rounds, local_steps=1, local_lr=0.1),
        clients=torch.arange(len(matrix)) if clients is None else torch.tensor(clients),
        vectors={"update": matrix},
        steps=torch.ones(len(matrix), dtype=torch.int64),
        shares=torch.full((len(matrix),), 1 / len(matrix)),
    )


def clean_record():
    return PaperDetector().initial_memory(torch.zeros(3), Constants(5, 10, 1, 0.1))


def judge(detector, memory, matrix, *, partial=False):
    """Return the detector's memory after a round."""
    sent = Broadcast(torch.zeros(matrix.shape[1]))
    given = DetectorInput(sent, torch.arange(len(matrix)), uploads(matrix), round=1, partial_participation=partial)
    return detector.judge(memory, given).memory


def test_expelled_at_lambda_strikes_not_before():
    detector, memory = PaperDetector(), clean_record()
    memory = judge(detector, memory, ALIKE)
    assert memory["strikes"].tolist() == [1] * 5
    assert not memory["expelled"].any()
    memory = judge(detector, memory, ALIKE)
    assert memory["expelled"].all()


def test_strikes_are_cumulative_and_need_kappa():
    opposed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    memory = judge(PaperDetector(kappa=0.7), clean_record(), opposed)
    assert memory["strikes"].tolist() == [1, 1, 1, 1, 0]


def test_kappa_is_inclusive():
    alpha = float(uploads(ALIKE).geometry.alpha[0])
    assert judge(PaperDetector(kappa=alpha), clean_record(), ALIKE)["strikes"].sum() == 5


def test_partial_participation_counts_rounds_taken_part_in():
    detector, memory = PaperDetector(), clean_record()
    for _ in range(2):
        memory = judge(detector, memory, ALIKE, partial=True)
    assert not memory["expelled"].any()
    memory = judge(detector, memory, ALIKE, partial=True)
    assert memory["expelled"].all()


def test_a_client_with_few_strikes_for_its_rounds_stays():
    """Three strikes are enough in three rounds, not in twenty: λ is a fifth of the rounds."""
    memory = {**clean_record(), "strikes": torch.tensor([2] * 5), "seen": torch.tensor([2, 2, 2, 19, 19])}
    after = judge(PaperDetector(), memory, ALIKE, partial=True)
    assert after["expelled"].tolist() == [True, True, True, False, False]


def test_one_upload_alone_gets_no_strike():
    memory = judge(PaperDetector(max_strikes=1), clean_record(), ALIKE[:1])
    assert memory["strikes"].sum() == 0
    assert memory["seen"].tolist() == [1, 0, 0, 0, 0]
    fedtaco.run("taco", clients=1, partition="iid", rounds=10, local_steps=1, detector="paper")


def test_a_cohort_of_everybody_is_full_participation():
    settings = {"rounds": 10, "local_steps": 2, "partition": "iid", "parameters": {"paper.kappa": 0.3}}
    for participation in (1.0, 0.98):
        with pytest.raises(RunStopped) as stop:
            fedtaco.run("taco", detector="paper", participation=participation, **settings)
        assert len(stop.value.history) == 2


def test_z_forgets_the_expelled():
    server = ServerState(torch.zeros(2), {"alpha": torch.tensor([0.8, 0.2, 0.4]), "previous": torch.ones(2)})
    after = Taco().remove_clients(server, Expulsion(torch.tensor([0]), 3, {0: {}}))
    torch.testing.assert_close(Taco().output(after), torch.full((2,), -0.7))


@pytest.mark.parametrize(("rounds", "limit"), [(50, 10), (12, 3), (1, 1)])
def test_default_limit_is_a_fifth_of_the_rounds(rounds, limit):
    assert PaperDetector().limit(Constants(5, rounds, 1, 0.1)) == limit


@pytest.mark.parametrize("wrong", [{"kappa": 0.0}, {"kappa": 1.1}, {"max_strikes": 0}, {"max_strikes": 1.5}])
def test_thresholds_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInput, match=rf"paper\.{next(iter(wrong))} is"):
        PaperDetector(**wrong)


def test_an_expelled_client_is_asked_no_more():
    """On IID digits every honest α exceeds a low κ: the paper's rule expels all, and the run says so."""
    with pytest.raises(RunStopped, match="has expelled every client") as stop:
        fedtaco.run(
            "taco",
            partition="iid",
            rounds=5,
            local_steps=2,
            detector="paper",
            parameters={"paper.kappa": 0.1, "paper.max_strikes": 2},
        )
    assert [record.round for record in stop.value.history] == [1, 2]
    assert all(record.expelled for record in stop.value.history.clients if record.round == 2)


def test_an_upload_too_long_to_have_a_norm_is_left_out():
    long = torch.ones(3, 4)
    long[1] = 1e30
    assert finite_rows({"update": long}).tolist() == [True, False, True]


def test_the_output_is_the_model_itself_once_all_are_expelled():
    taco = Taco()
    weights = torch.ones(2)
    memory = {"alpha": torch.full((3,), torch.nan), "previous": torch.zeros(2)}
    assert torch.equal(taco.output(ServerState(weights, memory)), weights)
